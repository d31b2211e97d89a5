#pragma once
// Features of a difference between the arms: each is a question with a number for an answer, asked of both arms alike.
// Symptoms (common_symptoms.h) are made of them.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "common_observation.h"
#include "kvdiv/base/json.h"

namespace kvdiv {

/// How many tokens each arm computed in a step, and how many it must.
struct RowCounts {
  std::int64_t step = 0, expected_on = 0, on = 0, expected_off = 0, off = 0;
};

/// By how many positions an arm's rotation is off the token's own: what rotating the same query (or key) by another
/// position gives exactly. None: no position within the text explains it.
struct RotaryShift {
  std::optional<std::int64_t> on, off;
};

/// The lowest position that the newest token gives weight to, in a layer; `rule`: by the config's window.
struct LowestKey {
  std::int64_t layer = 0, rule = 0, on = 0, off = 0;
};

/// K and V of the first layer that differs, position by position.
struct StoredDifference {
  std::int64_t layer = 0;
  std::int64_t n_compared = 0;                   ///< positions
  std::vector<std::int64_t> positions;           ///< that differ
  std::map<std::int64_t, std::int64_t> copy_of;  ///< of these, those that hold another position's K and V in ON
  /// KV head whose K and V ON has at head g; empty if its heads are no permutation of OFF's.
  std::vector<std::int64_t> heads;
  /// Explicit mantissa bits that the positions that differ need, at most.
  int bits_on = 0, bits_off = 0;
  /// Over the elements that differ: mean and RMS of (on − off)/off, their number, and the correlation of neighbours.
  double mean = 0.0, rms = 0.0, neighbours = 0.0;
  std::int64_t n_elements = 0;
};

/// The ε that an arm's RMSNorms act as if they had: of y = gain·x/√(mean x² + ε), from its own x and y. None where y is
/// not the gain times a multiple of x.
struct NormEpsilon {
  std::optional<double> on, off;
};

/// Where the two orders of rounding in RMSNorm give different numbers, the share of an arm's outputs that are those of
/// the order that is not the model's.
struct NormOrder {
  std::int64_t n = 0;  ///< elements that tell the orders apart
  double on = 0.0, off = 0.0;
};

struct Evidence {
  std::int64_t n_prompt = 0, n_layers = 0;
  double eps = 0.0;  ///< the config's
  bool in_float64 = false;
  bool in_chunks = false;  ///< the difference shows when the prompt is fed in chunks, and not when it is fed whole
  std::optional<FirstDifference> first;
  std::vector<RowCounts> rows;
  /// The largest attention weight that a token of the prompt gives to a later one.
  double future_on = 0.0, future_off = 0.0;
  bool first_row_twice_on = false;  ///< ON embeds its first token once more than OFF, and the rest is OFF's
  RotaryShift rotary;
  std::vector<LowestKey> lowest;
  std::optional<StoredDifference> stored;
  NormEpsilon norm_eps;
  std::optional<NormOrder> norm_order;
  /// The arm's logits are those that the other arm had so many steps before.
  std::optional<std::int64_t> on_late_by, off_late_by;
};

Json to_json(const Evidence& evidence);

// ---- questions ----

RotaryShift rotary_shift(const ObservedStep& step, const FirstDifference& first, const ModelConfig& config);
std::vector<LowestKey> lowest_keys(const ObservedStep& step, const ModelConfig& config);
double largest_future_weight(const ArmStep& arm, std::int64_t n_layers);
bool is_first_row_twice(const ObservedStep& prefill);
std::optional<StoredDifference> stored_difference(const ObservedStep& step, std::int64_t layer);
/// `weight` gives a parameter by its name, in double.
using WeightOf = std::function<at::Tensor(const std::string& name)>;
NormEpsilon norm_epsilon(const ObservedStep& step, const FirstDifference& first, const ModelConfig& config,
                         const WeightOf& weight);
/// Of steps in the compute dtype.
NormOrder norm_order(const ObservedStep& step, const ModelConfig& config, DType dtype, const WeightOf& weight);
/// k ≥ 1 such that at every step s ≥ k `late` has `other`'s logits of step s − k; none if there is no such k.
std::optional<std::int64_t> late_by(const std::vector<std::vector<double>>& late,
                                    const std::vector<std::vector<double>>& other);

}  // namespace kvdiv
