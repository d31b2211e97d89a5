#pragma once
// Flip rate against the size of the noise, and where it crosses a level.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kvdiv/base/json.h"
#include "noise_plan.h"
#include "noise_reference.h"

namespace kvdiv {

struct CurvePoint {
  double size = 0.0, rate = 0.0;
};

struct Crossing {
  std::optional<double> size;
  std::string reason;  ///< why there is none
};

/// The size at which a curve, ascending by size (> 0), crosses a level: linear in the rate against log size between the
/// first neighbours that bracket it. Where the rate falls with size, by chance, the largest rate so far stands for it.
Crossing crossing(std::span<const CurvePoint> curve, double level);

class NoiseSummary {
 public:
  void add(const NoiseCase& c, std::int64_t prompt_index, const NoiseRecord& record);
  /// {curve, thresholds}; the same whatever the order of the prompts was.
  Json to_json(const NoiseReference& fp16) const;
  /// A curve row's rates, or null where that noise was not asked for: {flip_rate, text_flip_rate}.
  Json rates_of_rounding(NoiseWhat what, std::int64_t bits) const;

 private:
  /// All texts of one prompt with noise of one size: its seeds.
  struct PerPrompt {
    double n_steps = 0.0, flips = 0.0, n_texts = 0.0, flipped_texts = 0.0, kl_nats = 0.0;
    double stored_size2 = 0.0, stored_rms2 = 0.0;  ///< sums of squares over texts
    std::int64_t tie_flips = 0;
  };
  struct Cell {
    std::map<std::int64_t, PerPrompt> prompts;  ///< by the prompt's index
    double kl_max = 0.0, max_abs_dlogit = 0.0;
    std::vector<PerPrompt> in_order() const;
  };
  /// Ascending size within a kind and quantity: the size, or minus the bits.
  using Key = std::tuple<NoiseKind, NoiseWhat, double>;
  /// By the size as stored, which both kinds of noise have, ascending.
  using Curve = std::vector<std::pair<double, std::vector<PerPrompt>>>;
  static double stored_size(const std::vector<PerPrompt>& prompts);
  static Json row(const Key& key, const Cell& cell);
  Curve curve_of(NoiseKind kind, NoiseWhat what) const;
  static Json threshold(const Curve& curve, bool by_step, double level);
  Json thresholds(NoiseKind kind, NoiseWhat what, const NoiseReference& fp16) const;

  std::map<Key, Cell> cells_;
};

/// How often texts flip at which size, against FP16's own; a failed control makes it invalid.
Json noise_verdict(const Json& conditions, const Json& controls);

}  // namespace kvdiv
