#include "run_setup.h"

#include <memory>
#include <set>

#include "kvdiv/base/random.h"

namespace kvdiv {

std::string Condition::name() const { return fmt::format("{}/{}/{}", name_of(dtype), backend, name_of(strategy)); }

SamplingParams sampling_of(const RunParams& params, Strategy strategy) {
  SamplingParams s;
  s.strategy = strategy;
  if (strategy != Strategy::greedy) s.temperature = params.temperature;
  if (strategy == Strategy::top_k) s.top_k = params.top_k;
  if (strategy == Strategy::top_p) s.top_p = params.top_p;
  return s;
}

bool is_greedy(const RunParams& params, Strategy strategy) {
  return strategy == Strategy::greedy || params.temperature == 0.0;
}

std::vector<std::int64_t> seeds_of(const RunParams& params, Strategy strategy) {
  std::vector<std::int64_t> seeds;
  if (params.seed)
    seeds = *params.seed;
  else
    for (std::int64_t s = 0; s < params.seeds; ++s) seeds.push_back(s);
  if (is_greedy(params, strategy)) seeds.resize(1);
  return seeds;
}

void validate(const RunParams& params) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::top_k, Strategy::top_p})
    validate(SamplingParams{strategy, params.temperature, params.top_k, params.top_p});
  if (params.max_new_tokens < 1) fail_usage("--max-new-tokens: {} is less than 1", params.max_new_tokens);
  if (params.seeds < 1) fail_usage("--seeds: {} is less than 1", params.seeds);
  if (params.dtype.empty()) fail_usage("--dtype: the list is empty");
  if (params.strategy.empty()) fail_usage("--strategy: the list is empty");
  if (params.backend.empty()) fail_usage("--backend: the list is empty");
  if (params.seed) {
    if (params.seed->empty()) fail_usage("--seed: the list is empty");
    for (const std::int64_t seed : *params.seed)
      if (seed < 0) fail_usage("--seed: {} is negative", seed);
  }
  if (std::set<std::string>(params.backend.begin(), params.backend.end()).size() != params.backend.size())
    fail_usage("--backend: a backend is given twice");
  for (const std::string& backend : params.backend) make_ops(backend, params.attention);
}

PairRequest make_request(const ModelConfig& config, const RunParams& params, const Condition& condition,
                         const PromptItem& prompt, std::int64_t seed) {
  PairRequest request;
  request.prompt = prompt.ids;
  request.max_new_tokens = params.max_new_tokens;
  if (!params.ignore_eos) request.eos_ids = config.eos_ids;
  request.clock = params.clock;
  request.record_activations = condition.dtype == DType::float16;
  const auto sampler = std::make_shared<Sampler>(sampling_of(params, condition.strategy));
  const auto prompt_key = static_cast<std::uint64_t>(prompt.index), seed_key = static_cast<std::uint64_t>(seed);
  request.choose = [sampler, prompt_key, seed_key](std::span<const double> logits, std::int64_t step) {
    return sampler->choose(logits, uniform_for(seed_key, prompt_key, static_cast<std::uint64_t>(step)));
  };
  return request;
}

}  // namespace kvdiv
