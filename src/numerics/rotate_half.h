#pragma once
// Rotary embedding with ATen's elementwise operations, in the reference's sequence: no sum but of two numbers, so that every
// backend on a CPU has the same bits.
#include <ATen/core/Tensor.h>

namespace kvdiv {

/// x·cos + rotate_half(x)·sin, x [B,H,T,D], tables [1,1,T,D].
at::Tensor rotate_half_form(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD);

}  // namespace kvdiv
