#include "kvdiv/experiments/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common_pairs.h"
#include "common_setup.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/numerics/algorithms.h"
#include "run_controls.h"
#include "run_fp64.h"
#include "run_summary.h"
#include "verdict.h"

namespace kvdiv {
namespace {

struct ArmClock {
  double seconds = 0.0;
  std::int64_t n_steps = 0;
  double rate() const { return seconds > 0.0 ? static_cast<double>(n_steps) / seconds : 0.0; }
  Json rate_or_null() const { return n_steps > 0 ? Json(rate()) : Json(nullptr); }
};

class Run {
 public:
  Run(Context& context, const RunParams& params)
      : context_(context), params_(params), summary_(params, context.config.sizes.n_layers, context.warnings) {}
  ExperimentResult execute();

 private:
  void condition(Decoder& decoder, const Condition& condition);
  void pairs(const Decoder& decoder, const Condition& condition);
  PairRecord pair(const Decoder& decoder, const Condition& condition, const PromptItem& prompt, std::int64_t seed,
                  const PairAids& aids);
  bool take_finished(const Condition& condition, const PromptItem& prompt, std::int64_t seed, PairRecord& record);
  Json timing() const;
  void put_summary();
  void note_choices(const Decoder& decoder, const Condition& condition);
  void warn_before();
  void decide_verdict();

  Context& context_;
  const RunParams& params_;
  ExperimentResult result_;
  RunSummary summary_;
  std::vector<ControlPair> control_pairs_;  ///< of the condition in hand, as they were decoded first
  ArmClock on_, off_;                       ///< of the pairs that were decoded here
};

void Run::warn_before() {
  const bool any_greedy =
      std::any_of(params_.strategy.begin(), params_.strategy.end(), [&](Strategy s) { return is_greedy(params_, s); });
  const auto n_seeds = params_.seed ? static_cast<std::int64_t>(params_.seed->size()) : params_.seeds;
  if (any_greedy && n_seeds > 1)
    context_.warnings.add(WarningCode::greedy_seeds_collapsed,
                          fmt::format("greedy decoding gives the same result for all {} seeds: decoded once", n_seeds));
  warn_few_prompts(context_);
}

ExperimentResult Run::execute() {
  warn_before();
  for (const DType dtype : params_.dtype) {
    for (const std::string& backend : params_.backend) {
      LoadedModel model = context_.load(dtype, backend, params_.attention);
      result_.extra["cast"][std::string(name_of(dtype))] = to_json_value(model.cast);
      // Warm-up: the first call loads kernels and touches every weight; speeds are of the calls after it.
      model.decoder.forward(context_.prompts.front().ids, nullptr);
      for (const Strategy strategy : params_.strategy) {
        condition(model.decoder, {dtype, backend, strategy});
        if (interrupted()) return std::move(result_);
      }
      note_choices(model.decoder, {dtype, backend, Strategy::greedy});
      if (!control_pairs_.empty())
        check_alignment(model.decoder, params_, {dtype, backend, params_.strategy.back()}, control_pairs_.front(),
                        summary_.controls(), context_.planted);
    }
  }
  summary_.finish();
  decide_verdict();
  result_.complete = true;
  return std::move(result_);
}

void Run::condition(Decoder& decoder, const Condition& c) {
  on_ = off_ = {};
  control_pairs_.clear();
  summary_.begin(c);
  pairs(decoder, c);
  if (!interrupted()) repeat_pairs(decoder, params_, c, control_pairs_, summary_.controls(), context_.planted);
  summary_.finish_condition(timing());
  put_summary();
  context_.sink.checkpoint(result_);
}

void Run::pairs(const Decoder& decoder, const Condition& c) {
  const auto seeds = seeds_of(params_, c.strategy);
  const auto n_all = static_cast<std::int64_t>(context_.prompts.size() * seeds.size());
  const Shard& shard = context_.shard;
  const std::int64_t n_total = (n_all - shard.index + shard.count - 1) / shard.count;
  std::optional<ActivationTap> activations;
  if (c.dtype == DType::float16) activations.emplace(context_.config.sizes.n_layers, decoder.device());
  // For this condition alone: recordings hold the addresses of the weights, and of what the condition's tap writes to.
  std::unique_ptr<StepGraphs> graphs;
  if (params_.cuda_graph)
    graphs = std::make_unique<StepGraphs>(decoder, longest_prompt(context_.prompts) + params_.max_new_tokens);
  context_.progress.stage(c.name());
  std::int64_t number = 0, n_done = 0;
  for (const PromptItem& prompt : context_.prompts)
    for (const std::int64_t seed : seeds) {
      if (interrupted() || !shard.holds(number++)) continue;
      const PairRecord record = pair(decoder, c, prompt, seed, {activations ? &*activations : nullptr, graphs.get()});
      if (control_pairs_.size() < kControlPairs)
        control_pairs_.push_back({&prompt, seed, {record.logits_sha256_on, record.logits_sha256_off}});
      context_.progress.update({++n_done, n_total, on_.rate(), off_.rate()});
    }
  context_.progress.end_stage();
}

PairRecord Run::pair(const Decoder& decoder, const Condition& c, const PromptItem& prompt, std::int64_t seed,
                     const PairAids& aids) {
  PairRecord record;
  if (take_finished(c, prompt, seed, record)) return record;
  RecordedPair decoded = decode_to_records(
      context_, decoder, params_, params_.clock, c, prompt, seed,
      [&](const StepRecord& step, const StepView&) { summary_.add(step); }, aids);
  summary_.add(decoded.record);
  on_.seconds += decoded.outcome.seconds_on;
  on_.n_steps += decoded.outcome.n_steps_on;
  off_.seconds += decoded.outcome.seconds_off;
  off_.n_steps += decoded.outcome.n_steps_off;
  return std::move(decoded.record);
}

/// A pair that an interrupted run has left is not decoded again.
bool Run::take_finished(const Condition& c, const PromptItem& prompt, std::int64_t seed, PairRecord& record) {
  std::optional<FinishedPair> finished = context_.sink.take_finished(pair_id_of(c, prompt, seed));
  if (!finished) return false;
  for (const StepRecord& step : finished->steps) summary_.add(step);
  summary_.add(finished->pair);
  record = std::move(finished->pair);
  if (record.prompt_sha256 != prompt.sha256)
    fail_unreadable("records of pair {}: prompt_sha256 {} instead of {}: another prompt; start over with --overwrite",
                    record.pair_id, short_name(record.prompt_sha256), short_name(prompt.sha256));
  return true;
}

Json Run::timing() const {
  return {{"on_tokens_per_s", on_.rate_or_null()},
          {"off_tokens_per_s", off_.rate_or_null()},
          {"on_s", on_.seconds},
          {"off_s", off_.seconds},
          {"peak_rss_bytes", peak_rss_bytes()}};
}

void Run::put_summary() {
  result_.conditions = summary_.conditions();
  result_.controls = to_json(summary_.controls());
}

/// What a vendor's library chose for each shape, in the report beside the conditions.
void Run::note_choices(const Decoder& decoder, const Condition& condition) {
  const Json choices = algorithms_of(decoder.ops());
  if (choices.is_null()) return;
  result_.extra["algorithms"].push_back(
      {{"dtype", name_of(condition.dtype)}, {"backend", condition.backend}, {"products", choices}});
}

void Run::decide_verdict() {
  const std::vector<DifferingPair> sample = summary_.differing();
  std::optional<Fp64Check> fp64;
  if (summary_.problems().empty() && !sample.empty()) fp64 = check_in_float64(context_, params_, sample);
  put_summary();
  result_.extra["fp64_check"] = fp64 ? to_json_value(*fp64) : Json(nullptr);
  const Verdict verdict = summary_.verdict(fp64);
  const bool is_bug = verdict.kind == "bug";
  result_.verdict =
      is_bug ? with_diagnosis(verdict, diagnose_pairs(context_, params_, sample)) : to_json_value(verdict);
}

}  // namespace

void validate(const RunParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const DecodeParams&>(params));
}

void require_shard(const RunParams& params, std::size_t n_prompts, const Shard& shard) {
  std::size_t most = 0;
  for (const Strategy s : params.strategy) most = std::max(most, n_prompts * seeds_of(params, s).size());
  if (static_cast<std::size_t>(shard.index) >= most)
    fail_usage("--shard {}/{}: holds none of the {} pairs of a condition; use at most {} shards", shard.index,
               shard.count, most, most);
}

ExperimentResult run_experiment(Context& context, const RunParams& params) {
  validate(params);
  require_shard(params, context.prompts.size(), context.shard);
  return Run(context, params).execute();
}

}  // namespace kvdiv
