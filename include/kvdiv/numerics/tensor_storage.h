#pragma once
// What a tensor's dtype is to the kernels.
#include <ATen/core/Tensor.h>

#include "kvdiv/numerics/kernels.h"
#include "kvdiv/base/error.h"

namespace kvdiv {

inline Storage storage_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kHalf:
      return Storage::float16;
    case at::kBFloat16:
      return Storage::bfloat16;
    case at::kFloat:
      return Storage::float32;
    case at::kDouble:
      return Storage::float64;
    default:
      fail(ErrorKind::internal, "no kernels for dtype {}", c10::toString(x.scalar_type()));
  }
}

/// What the kernels compute it in.
inline at::ScalarType wide_type(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

inline void require_same_dtype(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type())
    fail(ErrorKind::internal, "operands of {} and {}: a silent promotion", c10::toString(a.scalar_type()),
         c10::toString(b.scalar_type()));
}

}  // namespace kvdiv
