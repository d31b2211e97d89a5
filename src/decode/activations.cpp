#include "kvdiv/decode/activations.h"

#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <cmath>

namespace kvdiv {

bool ActivationTap::wants(Site site, std::int64_t) const {
  return site == Site::embedding || site == Site::block || site == Site::final_norm;
}

at::Tensor ActivationTap::visit(Site site, std::int64_t layer, const at::Tensor& tensor) {
  const auto [low, high] = at::aminmax(tensor);  // one pass; NaN propagates into both
  const double low_value = low.item().toDouble(), high_value = high.item().toDouble();
  const std::int64_t index = site == Site::embedding ? 0 : layer + 1;
  if (!std::isfinite(low_value) || !std::isfinite(high_value)) {
    if (!first_nonfinite_ || index < *first_nonfinite_) first_nonfinite_ = index;
    return tensor;
  }
  double& largest = max_abs_[static_cast<std::size_t>(index)];
  largest = std::max({largest, std::abs(low_value), std::abs(high_value)});
  return tensor;
}

}  // namespace kvdiv
