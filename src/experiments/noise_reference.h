#pragma once
// The size of FP16's own error in keys and values: what the sizes of the noise are held against.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kvdiv/decode/cache_noise.h"
#include "kvdiv/experiments/noise.h"
#include "kvdiv/stats/bootstrap.h"

namespace kvdiv {

/// ON along a given text: what a trajectory holds of the model that chose it, of another model too.
struct WalkedText {
  KvCache cache;
  std::vector<std::vector<double>> logits;  ///< [steps][V]
};
WalkedText walk_along(const Arms& arms, const Trajectory& trajectory);

class NoiseReference {
 public:
  /// The same text by a model in float32 or float64, and by the one in float16.
  struct Text {
    const KvCache& fine;
    const std::vector<std::vector<double>>& fine_logits;
    const KvCache& half;
    const std::vector<std::vector<double>>& half_logits;
  };
  explicit NoiseReference(std::int64_t n_layers) : n_layers_(n_layers) {}
  void add(std::int64_t prompt_index, const Text& text);

  /// Relative sizes as RelativeChange::by_norm has them, √ of the mean square over prompts; null without any.
  std::optional<double> storage_error(NoiseWhat what) const { return size_of(storage, what).value; }
  std::optional<double> model_error(NoiseWhat what) const { return size_of(model, what).value; }
  /// A row for each error and quantity: {error, what, relative_size, relative_rms, rms_floor, n_nonfinite, flip_rate,
  /// text_flip_rate}. Flips are those of the whole model in FP16; those of a cache that is merely stored so are not
  /// known here.
  Json rows() const;

 private:
  enum Error { storage, model };
  struct PerPrompt {
    std::array<std::array<double, 3>, 2> size2{}, rms2{};  ///< by Error and NoiseWhat: squares
    std::array<std::int64_t, 2> n_nonfinite{};             ///< by Error: elements
    double n_steps = 0.0, flips = 0.0, n_texts = 1.0, flipped_texts = 0.0;
  };
  std::vector<PerPrompt> in_order() const;
  BootstrapInterval size_of(Error error, NoiseWhat what) const;
  Json row(Error error, NoiseWhat what) const;

  std::int64_t n_layers_;
  std::map<std::int64_t, PerPrompt> prompts_;  ///< by the prompt's index
};

}  // namespace kvdiv
