#include "kvdiv/decode/activations.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "kvdiv/numerics/device.h"

namespace kvdiv {

ActivationTap::ActivationTap(std::int64_t n_layers, c10::Device device)
    : max_abs_(static_cast<std::size_t>(n_layers + 2), 0.0) {
  if (!device.is_cpu())
    kept_there_ = at::zeros({2, n_layers + 2}, at::TensorOptions().dtype(at::kFloat).device(device));
}

bool ActivationTap::wants(Site site, std::int64_t) const {
  return site == Site::embedding || site == Site::block || site == Site::final_norm;
}

at::Tensor ActivationTap::visit(Site site, std::int64_t layer, const at::Tensor& tensor) {
  const std::int64_t index = site == Site::embedding ? 0 : layer + 1;
  if (kept_there_.defined()) {
    module_of(tensor.device())->note_max_abs(tensor, kept_there_, index);
    return tensor;
  }
  const auto [low, high] = at::aminmax(tensor);  // one pass; NaN propagates into both
  const double low_value = low.item().toDouble(), high_value = high.item().toDouble();
  if (!std::isfinite(low_value) || !std::isfinite(high_value)) {
    if (!first_nonfinite_ || index < *first_nonfinite_) first_nonfinite_ = index;
    return tensor;
  }
  double& largest = max_abs_[static_cast<std::size_t>(index)];
  largest = std::max({largest, std::abs(low_value), std::abs(high_value)});
  return tensor;
}

std::vector<double> ActivationTap::max_abs() const {
  if (!kept_there_.defined()) return max_abs_;
  const at::Tensor host = kept_there_.to(at::kCPU, at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.size(1)};
}

std::vector<double> ActivationTap::take_max_abs() {
  std::vector<double> taken = max_abs();
  if (kept_there_.defined()) kept_there_.zero_();
  std::fill(max_abs_.begin(), max_abs_.end(), 0.0);
  first_nonfinite_.reset();
  return taken;
}

std::optional<std::int64_t> ActivationTap::first_nonfinite_layer() const {
  if (!kept_there_.defined()) return first_nonfinite_;
  const at::Tensor host = kept_there_.to(at::kCPU, at::kDouble).contiguous();
  const double* const of_all = host.const_data_ptr<double>() + host.size(1);
  for (std::int64_t i = 0; i < host.size(1); ++i)
    if (!std::isfinite(of_all[i])) return i;
  return std::nullopt;
}

}  // namespace kvdiv
