#pragma once
// Experiment 1, `kvdiv run`: both arms side by side, metrics per step, flips, accuracy, controls, verdict.
#include <cstddef>
#include <string>
#include <vector>

#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct RunParams : ArithmeticParams, DecodeParams {
  Clock clock = Clock::both;
  bool cuda_graph = false;
};

template <class V>
void describe_fields(V& v, RunParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<DecodeParams&>(p));
  v.field("clock", p.clock, "forced: OFF is fed ON's tokens; free: each its own; both");
  v.field("cuda-graph", p.cuda_graph, "GPU: replay ON's steps from recorded launches; the bits are the same");
}

/// Throws Error{usage} for values that no run can have.
void validate(const RunParams& params);

/// Throws Error{usage} for a shard that holds no pair of any condition: it would measure nothing.
void require_shard(const RunParams& params, std::size_t n_prompts, const Shard& shard);

ExperimentResult run_experiment(Context& context, const RunParams& params);

}  // namespace kvdiv
