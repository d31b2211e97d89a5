#include "common_setup.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/base/random.h"
#include "kvdiv/numerics/reduction.h"
#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {

std::string Condition::name() const { return fmt::format("{}/{}/{}", name_of(dtype), backend, name_of(strategy)); }

Json Condition::to_json() const {
  return {{"dtype", name_of(dtype)}, {"backend", backend}, {"strategy", name_of(strategy)}};
}

void for_each_greedy_condition(Context& context, const ArithmeticParams& params, ExperimentResult& result,
                               const std::function<void(const LoadedModel&, const Condition&)>& body) {
  for (const DType dtype : params.dtype)
    for (const std::string& backend : params.backend) {
      const LoadedModel model = context.load(dtype, backend, params.attention);
      result.extra["cast"][std::string(name_of(dtype))] = to_json_value(model.cast);
      body(model, {dtype, backend, Strategy::greedy});
      if (interrupted()) return;
    }
}

SamplingParams sampling_of(const DecodeParams& params, Strategy strategy) {
  SamplingParams s;
  s.strategy = strategy;
  if (strategy != Strategy::greedy) s.temperature = params.temperature;
  if (strategy == Strategy::top_k) s.top_k = params.top_k;
  if (strategy == Strategy::top_p) s.top_p = params.top_p;
  return s;
}

bool is_greedy(const DecodeParams& params, Strategy strategy) {
  return strategy == Strategy::greedy || params.temperature == 0.0;
}

std::vector<std::int64_t> seeds_of(const DecodeParams& params, Strategy strategy) {
  std::vector<std::int64_t> seeds;
  if (params.seed)
    seeds = *params.seed;
  else
    for (std::int64_t s = 0; s < params.seeds; ++s) seeds.push_back(s);
  if (is_greedy(params, strategy)) seeds.resize(1);
  return seeds;
}

void validate(const ArithmeticParams& params) {
  if (params.dtype.empty()) fail_usage("--dtype: the list is empty");
  if (params.backend.empty()) fail_usage("--backend: the list is empty");
  std::set<std::string> distinct;  // "order:kahan" and "order:kahan@float32" are one
  for (const std::string& b : params.backend)
    if (!distinct.insert(b.starts_with(kReductionPrefix) ? parse_reductions(b).name() : b).second)
      fail_usage("--backend: '{}' is given twice", b);
  for (const std::string& backend : params.backend) require_backend(backend, params.attention);
}

void validate(const DecodeParams& params) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::top_k, Strategy::top_p})
    validate(SamplingParams{strategy, params.temperature, params.top_k, params.top_p});
  if (params.max_new_tokens < 1) fail_usage("--max-new-tokens: {} is less than 1", params.max_new_tokens);
  if (params.seeds < 1) fail_usage("--seeds: {} is less than 1", params.seeds);
  if (params.strategy.empty()) fail_usage("--strategy: the list is empty");
  if (!params.seed) return;
  if (params.seed->empty()) fail_usage("--seed: the list is empty");
  for (const std::int64_t seed : *params.seed)
    if (seed < 0) fail_usage("--seed: {} is negative", seed);
}

void validate(const SelectionParams& params) {
  if (params.samples < 1) fail_usage("--samples: {} is less than 1", params.samples);
  if (params.max_steps < 2)
    fail_usage("--max-steps: {} is less than 2: the arms first differ at step 1", params.max_steps);
}

PairRequest make_request(const ModelConfig& config, const DecodeParams& params, Clock clock, const Condition& condition,
                         const PromptItem& prompt, std::int64_t seed) {
  PairRequest request;
  request.prompt = prompt.ids;
  request.max_new_tokens = params.max_new_tokens;
  if (!params.ignore_eos) request.eos_ids = config.eos_ids;
  request.clock = clock;
  request.greedy = is_greedy(params, condition.strategy);
  const auto sampler = std::make_shared<Sampler>(sampling_of(params, condition.strategy));
  const auto prompt_key = static_cast<std::uint64_t>(prompt.index), seed_key = static_cast<std::uint64_t>(seed);
  request.choose = [sampler, prompt_key, seed_key](std::span<const double> logits, std::int64_t step) {
    return sampler->choose(logits, uniform_for(seed_key, prompt_key, static_cast<std::uint64_t>(step)));
  };
  return request;
}

Trajectory trajectory_of(const Arms& arms, const SelectionParams& params, const PromptItem& prompt) {
  TrajectoryRequest request;
  request.prompt = prompt.ids;
  request.max_steps = params.max_steps;
  if (!params.ignore_eos) request.eos_ids = arms.config().eos_ids;
  return decode_trajectory(arms, request);
}

double mean_kl(const Trajectory& t) {
  CompensatedSum sum;
  for (std::size_t i = 0; i < t.logits_on.size(); ++i)
    sum.add(compare_logits(t.logits_on[i], t.logits_off[i]).kl_on_off_nats);
  return sum.value() / static_cast<double>(t.logits_on.size());
}

std::vector<const PromptItem*> select_prompts(const Arms& arms, const SelectionParams& params, Context& context) {
  std::vector<const PromptItem*> prompts;
  for (const PromptItem& p : context.prompts) prompts.push_back(&p);
  const auto n = static_cast<std::int64_t>(prompts.size());
  if (n <= params.samples) return prompts;
  std::map<const PromptItem*, double> kl;
  context.progress.stage("ranking prompts by KL");
  for (const PromptItem* p : prompts) {
    if (interrupted()) return {};
    kl[p] = mean_kl(trajectory_of(arms, params, *p));
    context.progress.update({static_cast<std::int64_t>(kl.size()), n, 0.0, 0.0});
  }
  context.progress.end_stage();
  std::stable_sort(prompts.begin(), prompts.end(), [&](auto a, auto b) { return kl.at(a) > kl.at(b); });
  prompts.resize(static_cast<std::size_t>(params.samples));
  return prompts;
}

StepMetrics metrics_of(const StepView& step) {
  return step.metrics ? *step.metrics : compare_logits(step.logits_on(), step.logits_off());
}

void warn_few_prompts(Context& context) {
  const auto n = context.prompts.size();
  if (n < 10)
    context.warnings.add(
        WarningCode::few_prompts,
        fmt::format("{} prompt{}: intervals resample prompts and are too narrow below 10", n, n == 1 ? "" : "s"));
}

bool prefill_is_bit_equal(const Trajectory& t) {
  return compare_logits(t.logits_on.front(), t.logits_off.front()).bit_equal;
}

}  // namespace kvdiv
