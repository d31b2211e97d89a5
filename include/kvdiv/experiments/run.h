#pragma once
// Experiment 1, `kvdiv run`: both arms side by side, metrics per step, flips, accuracy, controls, verdict.
#include <string>
#include <vector>

#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct RunParams {
  std::vector<DType> dtype{DType::float16};
  std::vector<std::string> backend{"torch"};
  std::string attention = "eager";
  std::vector<Strategy> strategy{Strategy::greedy};
  double temperature = 0.7;
  std::int64_t top_k = 50;
  double top_p = 0.95;
  std::int64_t max_new_tokens = 128;
  bool ignore_eos = false;
  std::int64_t seeds = 5;
  std::optional<std::vector<std::int64_t>> seed;
  Clock clock = Clock::both;
};

template <class V>
void describe_fields(V& v, RunParams& p) {
  v.field("dtype", p.dtype, "compute dtype(s); each is a condition");
  v.field("backend", p.backend, "arithmetic; may be repeated");
  v.field("attention", p.attention, "eager (the reference, operation for operation) or sdpa (fused)");
  v.field("strategy", p.strategy, "decoding strategies; each is a condition");
  v.field("temperature", p.temperature, "of top-k and top-p; 0 is greedy");
  v.field("top-k", p.top_k, "k of the strategy top-k");
  v.field("top-p", p.top_p, "p of the strategy top-p");
  v.field("max-new-tokens", p.max_new_tokens, "new tokens per prompt");
  v.field("ignore-eos", p.ignore_eos, "go on after an end-of-sequence token");
  v.field("seeds", p.seeds, "sampling seeds 0…N−1");
  v.field("seed", p.seed, "these sampling seeds, instead of --seeds");
  v.field("clock", p.clock, "forced: OFF is fed ON's tokens; free: each its own; both");
}

/// Throws Error{usage} for values that no run can have.
void validate(const RunParams& params);

ExperimentResult run_experiment(Context& context, const RunParams& params);

}  // namespace kvdiv
