#pragma once
// The records of `drift` per layer and per head, and what they say.
#include <map>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

class DriftSummary {
 public:
  explicit DriftSummary(const ModelSizes& sizes) : sizes_(sizes) {}
  void add(const LayerRecord& record);
  void add(const HeadRecord& record);
  /// A prompt whose text ended before the step.
  void skip() { ++n_skipped_; }

  /// {n_prompts, n_skipped, by_layer: [{layer, l2, rel_l2, …: stats, amplification, against_layer_before}], by_head,
  /// first_differing_layer, largest_amplification {layer, factor}}.
  Json to_json() const;

 private:
  struct Layer {
    std::vector<double> l2, rel_l2, cosine, max_abs, l2_trimmed, rel_l2_trimmed, cosine_trimmed;
  };
  struct Head {
    std::int64_t kv_head = 0;
    std::vector<double> kl, max_abs;
  };
  Json layer_rows() const;
  Json head_rows() const;

  ModelSizes sizes_;
  std::vector<Layer> layers_;  ///< 0 … L + 1, the last after the final norm
  std::map<std::pair<std::int64_t, std::int64_t>, Head> heads_;
  std::int64_t n_skipped_ = 0;
};

/// Benjamini–Hochberg over all layer × condition combinations, in place.
void adjust_layer_tests(Json& conditions);

/// "none": all states equal; "gradual"; "explosive": a layer multiplies the difference by more than kExplosive, to more than
/// kExplosiveRoundings unit roundoffs of the dtype.
Json drift_verdict(const Json& conditions, bool prefill_bit_equal);

inline constexpr double kExplosive = 10.0;
inline constexpr double kExplosiveRoundings = 20.0;

}  // namespace kvdiv
