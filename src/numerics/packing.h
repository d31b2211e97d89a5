#pragma once
// Weights [N,K] with `width` rows side by side, [⌈N/width⌉, K, width], so that a vector holds neighbouring outputs.
#include <ATen/core/Tensor.h>

#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// The same dtype; what is missing in the last block is zero.
at::Tensor pack_rows(const at::Tensor& w_NK, std::int64_t width);
/// Back again: [N,K].
at::Tensor unpack_rows(const Matrix& w);
/// The rows `ids_BT` of a packed weight → [B,T,K]. Internal error for an id that is no row.
at::Tensor rows_of_packed(const Matrix& w, const at::Tensor& ids_BT);

}  // namespace kvdiv
