#include "run_fp64.h"

#include <algorithm>
#include <map>
#include <set>

#include "kvdiv/model/memory.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv {
namespace {

/// Steps of a pair that are decoded again; further ones if its largest KL is behind them.
constexpr std::int64_t kFp64Steps = 32;

std::int64_t steps_of(const RunParams& params, const DifferingPair& pair) {
  return std::min(params.max_new_tokens, std::max(kFp64Steps, pair.worst_step + 1));
}

std::string group_of(const DifferingPair& pair) {
  return fmt::format("{}/{}", pair.condition.backend, name_of(pair.condition.strategy));
}

/// A backend without float64 refuses it; torch has it.
LoadedModel load_float64(Context& context, const RunParams& params, std::string& backend) {
  try {
    return context.load(DType::float64, backend, params.attention);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage || backend == "torch") throw;
    backend = "torch";
    return context.load(DType::float64, backend, params.attention);
  }
}

/// Of a pair that came out of the context's prompts.
const PromptItem& prompt_of(const Context& context, const DifferingPair& pair) {
  const auto at = std::find_if(context.prompts.begin(), context.prompts.end(),
                               [&](const PromptItem& p) { return p.id == pair.prompt_id; });
  if (at == context.prompts.end()) fail(ErrorKind::internal, "no prompt {}", pair.prompt_id);
  return *at;
}

Fp64Pair decode_in_float64(const Context& context, const Decoder& decoder, RunParams params, const Condition& wide,
                           const DifferingPair& pair) {
  params.max_new_tokens = steps_of(params, pair);
  const PromptItem& prompt = prompt_of(context, pair);
  PairRequest request = make_request(context.config, params, Clock::forced, wide, prompt, pair.seed);
  request.planted = context.planted;
  Fp64Pair out{fp64_name_of(pair), group_of(pair), 0, 0.0, 0.0};
  double kl = 0.0;  // plain: an infinite term must stay infinite
  decode_pair(decoder, request, [&](const StepView& step) {
    const StepMetrics m = metrics_of(step);
    kl += m.kl_on_off_nats;
    ++out.n_steps;
    out.max_abs_dlogit = std::max(out.max_abs_dlogit, m.max_abs_dlogit);
  });
  out.mean_kl_nats = out.n_steps > 0 ? kl / static_cast<double>(out.n_steps) : 0.0;
  return out;
}

}  // namespace

void PairTally::add(const StepRecord& record) {
  if (!record.same_prefix) return;
  differs_ = differs_ || !record.bit_equal;
  sum_ += record.kl_on_off_nats;
  ++n_;
  if (record.kl_on_off_nats > largest_) largest_ = record.kl_on_off_nats, worst_step_ = record.step;
}

std::optional<DifferingPair> PairTally::take(const Condition& condition, const std::string& prompt_id,
                                             std::int64_t seed) const {
  if (!differs_) return std::nullopt;
  return DifferingPair{condition, prompt_id, seed, sum_ / static_cast<double>(n_), worst_step_};
}

void DifferingPairs::add(const DifferingPair& pair) {
  // A prompt and seed that differed in several dtypes is decoded again once.
  const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const DifferingPair& k) {
    return group_of(k) == group_of(pair) && k.prompt_id == pair.prompt_id && k.seed == pair.seed;
  });
  if (same == kept_.end())
    kept_.push_back(pair);
  else if (pair.mean_kl_nats > same->mean_kl_nats)
    *same = pair;
  std::stable_sort(kept_.begin(), kept_.end(),
                   [](const DifferingPair& a, const DifferingPair& b) { return a.mean_kl_nats > b.mean_kl_nats; });
  std::map<std::string, std::size_t> n;
  std::erase_if(kept_, [&](const DifferingPair& k) { return ++n[group_of(k)] > kFp64Pairs; });
}

std::vector<DifferingPair> DifferingPairs::sample() const {
  std::set<std::string> groups;
  for (const DifferingPair& p : kept_) groups.insert(group_of(p));
  const std::size_t n_each = groups.empty() ? 0 : std::max<std::size_t>(1, kFp64Pairs / groups.size());
  std::map<std::string, std::size_t> n;
  std::vector<DifferingPair> out;
  for (const DifferingPair& p : kept_)
    if (++n[group_of(p)] <= n_each) out.push_back(p);
  return out;
}

std::string fp64_name_of(const DifferingPair& pair) {
  return fmt::format("{}/{}/s{}", group_of(pair), pair.prompt_id, pair.seed);
}

Fp64Check total_of(std::vector<Fp64Pair> pairs) {
  struct Sums {
    double kl = 0.0;
    std::int64_t n_steps = 0;
  };
  Fp64Check check;
  std::map<std::string, Sums> groups;
  for (const Fp64Pair& p : pairs) {
    Sums& sums = groups[p.group];
    sums.kl += p.mean_kl_nats * static_cast<double>(p.n_steps);
    sums.n_steps += p.n_steps;
    check.n_steps += p.n_steps;
    check.max_abs_dlogit = std::max(check.max_abs_dlogit, p.max_abs_dlogit);
  }
  // The backend or strategy with most left decides: a fault of one must not be thinned by the others.
  for (const auto& [name, sums] : groups)
    if (sums.n_steps > 0)
      check.mean_kl_nats = std::max(check.mean_kl_nats, sums.kl / static_cast<double>(sums.n_steps));
  check.n_pairs = std::ssize(pairs);
  check.pairs = std::move(pairs);
  return check;
}

std::optional<Fp64Check> check_in_float64(Context& context, const RunParams& params,
                                          std::span<const DifferingPair> pairs) {
  std::int64_t longest = 0;
  for (const DifferingPair& p : pairs)
    longest = std::max(longest, std::ssize(prompt_of(context, p).ids) + steps_of(params, p));
  const auto need = memory_need(context.config, DType::float64, longest).total();
  if (need > available_memory_bytes(context.device)) {
    context.warnings.add(WarningCode::fp64_check_skipped,
                         fmt::format("the FP64 control needs {}", human_bytes(static_cast<double>(need))));
    return std::nullopt;
  }
  context.progress.stage("float64 control");
  std::vector<Fp64Pair> done;
  std::map<std::string, LoadedModel> models;  // by the backend of the run
  for (const DifferingPair& p : pairs) {
    std::string backend = p.condition.backend;
    const auto known = models.find(p.condition.backend);
    const LoadedModel& model =
        known != models.end()
            ? known->second
            : models.emplace(p.condition.backend, load_float64(context, params, backend)).first->second;
    done.push_back(
        decode_in_float64(context, model.decoder, params, {DType::float64, backend, p.condition.strategy}, p));
    context.progress.update({std::ssize(done), std::ssize(pairs), 0.0, 0.0});
  }
  context.progress.end_stage();
  return total_of(std::move(done));
}

Diagnosis diagnose_pairs(Context& context, const RunParams& params, std::span<const DifferingPair> pairs) {
  context.progress.stage("where the arms part");
  std::string backend = pairs.front().condition.backend;
  const LoadedModel model = load_float64(context, params, backend);
  const Arms arms = arms_of(model.decoder, context);
  std::vector<std::vector<TokenId>> prompts;
  DiagnosisOptions options;
  for (const DifferingPair& p : pairs) {
    options.max_steps = std::max(options.max_steps, std::min(params.max_new_tokens, p.worst_step + 1));
    const PromptItem& prompt = prompt_of(context, p);
    if (std::find(prompts.begin(), prompts.end(), prompt.ids) == prompts.end()) prompts.push_back(prompt.ids);
  }
  Diagnosis d = diagnose({arms, arms, prompts}, options);
  context.progress.end_stage();
  return d;
}

}  // namespace kvdiv
