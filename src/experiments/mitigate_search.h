#pragma once
// The smallest set of operations that must be computed in a fixed order for ON and OFF to agree, and how it was found.
#include <cstdint>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/base/progress.h"
#include "mitigate_models.h"
#include "mitigate_walk.h"

namespace kvdiv {

struct SetSearch {
  OpsOf usual, fixed;  ///< two decoders of one model in one dtype
  Planted planted = {};
  std::vector<GivenText> texts;
  double max_kl = 0.0;  ///< nats, at every step ≥ 1; 0: the same bits
  std::int64_t max_subsets = 0;
};

/// The kinds that a model has.
std::vector<Operation> operations_of(const ModelConfig& config);

/// 1. All kinds fixed: must meet the limit, or there is nothing to search for.
/// 2. Each kind alone left as it is, all others fixed: its own contribution, and whether it is necessary.
/// 3. From the necessary ones forward: the kind that lowers the mean KL most, until the limit is met.
/// 4. Backward: kinds that can be left out one at a time.
/// 5. All smaller sets, if they are no more than `max_subsets`, smallest first: the first that meets the limit is the
///    answer, or none does and the answer is the smallest.
///
/// Step 0, where the arms do the same work, is left out. A set is given up at the first step over the limit wherever
/// its KL is not needed.
///
/// Null when interrupted, else {max_kl_nats, n_texts, operations, all_fixed_meets_limit, alone: [{operation, necessary,
/// kl_mean_nats, …}], trail: [{phase, …}], n_evaluated, evaluated: [{fixed, …}], smallest, size, n_smaller, proof,
/// proven_smallest, sentence}. `proof`: "exhaustive"; "necessary" (each member is needed while all others are fixed, so
/// no smaller set does if fixing more never makes the arms differ more); "local" (no member can be left out alone).
Json search_smallest_set(const SetSearch& search, Progress& progress);

}  // namespace kvdiv
