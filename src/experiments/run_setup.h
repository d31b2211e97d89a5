#pragma once
// What the parts of `run` share: how a condition decodes a pair.
#include <string>

#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/experiments/run.h"

namespace kvdiv {

struct Condition {
  DType dtype = DType::float16;
  std::string backend;
  Strategy strategy = Strategy::greedy;
  std::string name() const;  ///< "float16/torch/greedy"
};

/// The seeds that a strategy runs: greedy decoding does not depend on the seed, so it has one.
std::vector<std::int64_t> seeds_of(const RunParams& params, Strategy strategy);
bool is_greedy(const RunParams& params, Strategy strategy);

SamplingParams sampling_of(const RunParams& params, Strategy strategy);

/// The request of one pair. The prompt must outlive it.
PairRequest make_request(const ModelConfig& config, const RunParams& params, const Condition& condition,
                         const PromptItem& prompt, std::int64_t seed);

}  // namespace kvdiv
