#pragma once
// Parameters that several experiments share: each is a field list that an experiment's own one begins with.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

/// How numbers are computed. Lists make a product of conditions.
struct ArithmeticParams {
  std::vector<DType> dtype{DType::float16};
  std::vector<std::string> backend{"torch"};
  std::string attention = "eager";
};

template <class V>
void describe_fields(V& v, ArithmeticParams& p) {
  v.field("dtype", p.dtype, "compute dtype(s); each is a condition");
  v.field("backend", p.backend,
          "arithmetic; may be repeated: torch, invariant, or order:SPEC, order:prefill=SPEC,decode=SPEC, SPEC one of "
          "sequential, pairwise, blocked:N, split-k:N, kahan, with @float16 for FP16 accumulators; on a GPU "
          "torch, invariant, cublaslt:heuristic, cublaslt:no-split-k, cublaslt:one-algorithm");
  v.field("attention", p.attention, "eager (the reference, operation for operation) or sdpa (fused)");
}

/// How tokens are chosen, and how many.
struct DecodeParams {
  std::vector<Strategy> strategy{Strategy::greedy};
  double temperature = 0.7;
  std::int64_t top_k = 50;
  double top_p = 0.95;
  std::int64_t max_new_tokens = 128;
  bool ignore_eos = false;
  std::int64_t seeds = 5;
  std::optional<std::vector<std::int64_t>> seed;
};

template <class V>
void describe_fields(V& v, DecodeParams& p) {
  v.field("strategy", p.strategy, "decoding strategies; each is a condition");
  v.field("temperature", p.temperature, "of top-k and top-p; 0 is greedy");
  v.field("top-k", p.top_k, "k of the strategy top-k");
  v.field("top-p", p.top_p, "p of the strategy top-p");
  v.field("max-new-tokens", p.max_new_tokens, "new tokens per prompt");
  v.field("ignore-eos", p.ignore_eos, "go on after an end-of-sequence token");
  v.field("seeds", p.seeds, "sampling seeds 0…N−1");
  v.field("seed", p.seed, "these sampling seeds, instead of --seeds");
}

/// Which prompts an experiment looks into, and how far: along ON's greedy tokens, both arms on the same prefix.
struct SelectionParams {
  std::int64_t samples = 600;
  std::int64_t max_steps = 32;
  bool ignore_eos = false;
};

template <class V>
void describe_fields(V& v, SelectionParams& p) {
  v.field("samples", p.samples, "prompts to look into: those of the highest mean same-prefix KL");
  v.field("max-steps", p.max_steps, "steps of each, along ON's greedy tokens");
  v.field("ignore-eos", p.ignore_eos, "go on after an end-of-sequence token");
}

/// Throw Error{usage} for values that no experiment can have.
void validate(const ArithmeticParams& params);
void validate(const DecodeParams& params);
void validate(const SelectionParams& params);

}  // namespace kvdiv
