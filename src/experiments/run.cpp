#include "kvdiv/experiments/run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "common_pairs.h"
#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/numerics/algorithms.h"
#include "kvdiv/stats/condition_summary.h"
#include "run_controls.h"
#include "run_family.h"
#include "run_fp64.h"
#include "verdict.h"

namespace kvdiv {
namespace {

struct ArmClock {
  double seconds = 0.0;
  std::int64_t n_steps = 0;
  double rate() const { return seconds > 0.0 ? static_cast<double>(n_steps) / seconds : 0.0; }
};

class Run {
 public:
  Run(Context& context, const RunParams& params) : context_(context), params_(params) {}
  ExperimentResult execute();

 private:
  void condition(Decoder& decoder, const Condition& condition);
  PairOutcome pair(const Decoder& decoder, const Condition& condition, const PromptItem& prompt, std::int64_t seed,
                   ConditionAccumulator& accumulator, StepGraphs* graphs);
  void note_outcome(const Condition& condition, const PromptItem& prompt, const PairOutcome& outcome);
  void finish_condition(const Condition& condition, const ConditionAccumulator& accumulator);
  void note_choices(const Decoder& decoder, const Condition& condition);
  void warn_before();
  void decide_verdict();

  Context& context_;
  const RunParams& params_;
  ExperimentResult result_;
  ControlTally tally_;
  std::vector<VerdictInput> verdict_inputs_;
  std::vector<std::optional<McNemarResult>> mcnemar_;  ///< per condition
  std::vector<std::string> problems_;
  std::vector<ControlPair> control_pairs_;
  DifferingPairs differing_;
  ArmClock on_, off_;
  std::optional<ActivationTap> activations_;  ///< of a condition in float16
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
                        tally_, context_.planted);
    }
  }
  adjust_family(result_.conditions, mcnemar_);
  decide_verdict();
  result_.complete = true;
  return std::move(result_);
}

void Run::condition(Decoder& decoder, const Condition& c) {
  ConditionAccumulator accumulator(std::string(name_of(c.dtype)), c.backend, std::string(name_of(c.strategy)),
                                   params_.clock);
  const auto seeds = seeds_of(params_, c.strategy);
  const auto n_total = static_cast<std::int64_t>(context_.prompts.size() * seeds.size());
  on_ = off_ = {};
  control_pairs_.clear();
  activations_.reset();
  if (c.dtype == DType::float16) activations_.emplace(context_.config.sizes.n_layers, decoder.device());
  // For this condition alone: recordings hold the addresses of the weights, and of what the condition's tap writes to.
  std::unique_ptr<StepGraphs> graphs;
  if (params_.cuda_graph)
    graphs = std::make_unique<StepGraphs>(decoder, longest_prompt(context_.prompts) + params_.max_new_tokens);
  context_.progress.stage(c.name());
  std::int64_t n_done = 0;
  for (const PromptItem& prompt : context_.prompts) {
    for (const std::int64_t seed : seeds) {
      note_outcome(c, prompt, pair(decoder, c, prompt, seed, accumulator, graphs.get()));
      context_.progress.update({++n_done, n_total, on_.rate(), off_.rate()});
      if (interrupted()) break;
    }
    if (interrupted()) break;
  }
  context_.progress.end_stage();
  if (!interrupted()) repeat_pairs(decoder, params_, c, control_pairs_, tally_, context_.planted);
  finish_condition(c, accumulator);
}

PairOutcome Run::pair(const Decoder& decoder, const Condition& c, const PromptItem& prompt, std::int64_t seed,
                      ConditionAccumulator& accumulator, StepGraphs* graphs) {
  Fingerprinter fingerprinter;
  const bool is_control = control_pairs_.size() < kControlPairs;
  PairTally tally;
  RecordedPair pair = decode_to_records(context_, decoder, params_, params_.clock, c, prompt, seed,
                                        [&](const StepRecord& record, const StepView& step) {
                                          accumulator.add(record);
                                          tally.add(record);
                                          if (step.step == 0 && !record.bit_equal) tally_.prefill_bit_equal = false;
                                          if (is_control) fingerprinter.add(step);
                                        },
                                        {activations_ ? &*activations_ : nullptr, graphs});
  if (is_control) control_pairs_.push_back({&prompt, seed, fingerprinter.take()});
  if (const auto differing = tally.take(c, prompt, seed)) differing_.add(*differing);
  accumulator.add(pair.record);
  return std::move(pair.outcome);
}

void Run::note_outcome(const Condition& c, const PromptItem& prompt, const PairOutcome& outcome) {
  tally_.n_tokens_on.expected += outcome.n_tokens_on.expected;
  tally_.n_tokens_on.computed += outcome.n_tokens_on.computed;
  tally_.n_tokens_off.expected += outcome.n_tokens_off.expected;
  tally_.n_tokens_off.computed += outcome.n_tokens_off.computed;
  on_.seconds += outcome.seconds_on;
  on_.n_steps += outcome.n_steps_on;
  off_.seconds += outcome.seconds_off;
  off_.n_steps += outcome.n_steps_off;
  if (!outcome.nonfinite) return;
  const auto n_layers = context_.config.sizes.n_layers;
  const auto& stop = *outcome.nonfinite;
  const std::string where = stop.layer == 0              ? "embeddings"
                            : stop.layer <= n_layers     ? fmt::format("layer {} of {}", stop.layer, n_layers)
                            : stop.layer == n_layers + 1 ? "final norm"
                                                         : "output head";
  const std::string text = fmt::format(
      "{}, prompt {}: arm {} is not finite at step {}, first in the {}; largest |activation| before it {:.4g}",
      c.name(), prompt.id, name_of(stop.arm) == "on" ? "ON" : "OFF", stop.step, where, stop.max_abs_before);
  context_.warnings.add(WarningCode::nonfinite_logits, text);
  problems_.push_back("non-finite logits in " + text);
}

void Run::finish_condition(const Condition& c, const ConditionAccumulator& accumulator) {
  const ConditionSummary summary = accumulator.finish();
  Json j = to_json_value(summary);
  if (params_.clock == Clock::forced) j["free_running"] = j["after_flip"] = nullptr;  // not run is not zero
  mcnemar_.push_back(summary.mcnemar);
  j["timing"] = {
      {"on_tokens_per_s", on_.rate()}, {"off_tokens_per_s", off_.rate()}, {"peak_rss_bytes", peak_rss_bytes()}};
  if (activations_) j["max_abs_activation"] = to_json_value(activations_->max_abs());
  result_.conditions.push_back(std::move(j));
  result_.controls = to_json(tally_);
  const auto& s = summary.same_prefix;
  if (s.tie_flips > 0)
    context_.warnings.add(WarningCode::ties, fmt::format("{}: flips caused by ties: {}", c.name(), s.tie_flips));
  verdict_inputs_.push_back({c.name(), c.dtype, s.n_steps, s.flips, s.bit_equal_rate.value_or(1.0),
                             s.kl_on_off_nats.mean.value_or(0.0), s.max_abs_dlogit.max.value_or(0.0)});
  context_.sink.checkpoint(result_);
}

/// What a vendor's library chose for each shape, in the report beside the conditions.
void Run::note_choices(const Decoder& decoder, const Condition& condition) {
  const Json choices = algorithms_of(decoder.ops());
  if (choices.is_null()) return;
  result_.extra["algorithms"].push_back(
      {{"dtype", name_of(condition.dtype)}, {"backend", condition.backend}, {"products", choices}});
}

void Run::decide_verdict() {
  for (const std::string& name : tally_.failed()) problems_.push_back("control " + name + " failed");
  const std::vector<DifferingPair> sample = differing_.sample();
  std::optional<Fp64Check> fp64;
  if (problems_.empty() && !sample.empty()) fp64 = check_in_float64(context_, params_, sample);
  result_.controls = to_json(tally_);
  result_.extra["fp64_check"] = fp64 ? to_json_value(*fp64) : Json(nullptr);
  const Verdict verdict = decide(verdict_inputs_, fp64, problems_);
  const bool is_bug = verdict.kind == "bug";
  result_.verdict =
      is_bug ? with_diagnosis(verdict, diagnose_pairs(context_, params_, sample)) : to_json_value(verdict);
}

}  // namespace

void validate(const RunParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const DecodeParams&>(params));
}

ExperimentResult run_experiment(Context& context, const RunParams& params) {
  validate(params);
  return Run(context, params).execute();
}

}  // namespace kvdiv
