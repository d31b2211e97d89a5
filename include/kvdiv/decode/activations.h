#pragma once
// An observing tap: the largest |activation| of the residual stream per layer, and the first layer that is not finite.
#include <cstdint>
#include <optional>
#include <vector>

#include "kvdiv/numerics/tap.h"

namespace kvdiv {

class ActivationTap final : public Tap {
 public:
  /// Index 0: embeddings; 1 … L: block outputs; L + 1: after the final norm.
  explicit ActivationTap(std::int64_t n_layers) : max_abs_(static_cast<std::size_t>(n_layers + 2), 0.0) {}

  bool wants(Site site, std::int64_t layer) const override;
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override;

  const std::vector<double>& max_abs() const { return max_abs_; }
  /// The first layer (index as above) at which a NaN or an infinity was seen.
  std::optional<std::int64_t> first_nonfinite_layer() const { return first_nonfinite_; }

 private:
  std::vector<double> max_abs_;
  std::optional<std::int64_t> first_nonfinite_;
};

}  // namespace kvdiv
