#pragma once
// An observing tap: the largest |activation| of the residual stream per layer, and the first layer that is not finite.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kvdiv/numerics/tap.h"

namespace kvdiv {

class ActivationTap final : public Tap {
 public:
  /// Index 0: embeddings; 1 … L: block outputs; L + 1: after the final norm. On a GPU the numbers are kept there, in FP32,
  /// until someone asks: looking makes no step wait.
  explicit ActivationTap(std::int64_t n_layers, c10::Device device = c10::kCPU);

  bool wants(Site site, std::int64_t layer) const override;
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override;
  bool only_launches() const override { return kept_there_.defined(); }

  /// Of the layers' finite outputs; 0 where none was.
  std::vector<double> max_abs() const;
  /// The same, and forgets them: what follows is counted anew. On a GPU the numbers stay where they are, because recorded
  /// launches write there.
  std::vector<double> take_max_abs();
  /// The first layer (index as above) at which a NaN or an infinity was seen.
  std::optional<std::int64_t> first_nonfinite_layer() const;

 private:
  std::vector<double> max_abs_;
  std::optional<std::int64_t> first_nonfinite_;
  at::Tensor
      kept_there_;  ///< [2,L+2] FP32 on the device: largest finite, largest of all (NaN above infinity); undefined on a CPU
};

}  // namespace kvdiv
