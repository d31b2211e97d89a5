#pragma once
// Which patches one prompt and step get: data, in the order in which they are made.
#include <string>
#include <vector>

#include "kvdiv/experiments/patch.h"

namespace kvdiv {

/// Which of the report's tables a patch belongs to.
enum class PatchGroup { whole, by_layer, cumulative, by_head, everything, random };

struct PatchCase {
  PatchGroup group = PatchGroup::whole;
  std::string what;  ///< as in the record: "residual", "k", "v", "kv", "all", "random"
  Direction direction = Direction::off_into_on;
  Patch patch;
  bool follow = false;  ///< its effect on the steps after it is measured
};

/// The patches of a step ≥ 1. Residual patches of ON's output into OFF are the published protocol: see published_plan.
std::vector<PatchCase> direct_plan(const ModelSizes& sizes, const PatchParams& params);

/// The published protocol: ON's block output of the newest token into OFF, at each layer alone and at layers 1 … l.
std::vector<PatchCase> published_plan(const ModelSizes& sizes, const PatchParams& params);

/// Everything of the other arm: K, V and the residual stream behind every block.
Patch everything(const ModelSizes& sizes);

}  // namespace kvdiv
