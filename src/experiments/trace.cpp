#include "kvdiv/experiments/trace.h"

#include <ATen/ops/matmul.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/base/text.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/metrics.h"
#include "trace_births.h"
#include "trace_gqa.h"
#include "trace_kv.h"
#include "trace_verdict.h"

namespace kvdiv {
namespace {

constexpr const char* kReference = "the reference for K and V";
constexpr const char* kNoise = "noise on shared K and V";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Cosines of the real arms' errors between query heads; a value a (prompt, step, layer).
class RealCorrelation {
 public:
  void add(std::int32_t prompt, const std::vector<at::Tensor>& errors_HD, std::int64_t R) {
    for (const at::Tensor& error_HD : errors_HD) {
      const HeadCorrelation c = correlate_heads(at::matmul(error_HD, error_HD.t()), R);
      shared_.push_back(c.shared.value_or(kNaN));
      other_.push_back(c.other.value_or(kNaN));
      prompts_.push_back(prompt);
    }
  }
  Json row(const char* difference) const {
    return {{"difference", difference},
            {"corr_shared", to_json_value(mean_interval_bca(shared_, prompts_))},
            {"corr_other", to_json_value(mean_interval_bca(other_, prompts_))}};
  }

 private:
  std::vector<double> shared_, other_;
  std::vector<std::int32_t> prompts_;
};

struct TraceSummary {
  KvSummary kv;
  BirthSummary births;
  RealCorrelation as_it_is, stored_only;
};

class TraceRun {
 public:
  TraceRun(Context& context, const TraceParams& params) : context_(context), params_(params) {}
  ExperimentResult execute();

 private:
  std::optional<LoadedModel> load_if_it_fits(DType dtype, const char* what_for);
  void condition(const Decoder& decoder, const Condition& condition);
  void prompt(const Arms& arms, const Condition& c, const PromptItem& item, std::int32_t number, TraceSummary& summary);
  void kv_step(const Arms& arms, const Trajectory& t, const KvStates* fp64, std::int64_t step, std::int32_t number,
               const std::string& pair_id, TraceSummary& summary);
  void traced_step(const Arms& arms, const Trajectory& t, std::int64_t step, std::int32_t number,
                   const std::string& pair_id, TraceSummary& summary);
  void gqa();
  bool is_traced(std::int64_t step) const {
    return std::find(params_.step.begin(), params_.step.end(), step) != params_.step.end();
  }

  Context& context_;
  const TraceParams& params_;
  ExperimentResult result_;
  TraceControls controls_;
  std::optional<LoadedModel> fp64_;
};

/// Next to a model that is measured.
std::optional<LoadedModel> TraceRun::load_if_it_fits(DType dtype, const char* what_for) {
  const std::int64_t length = longest_prompt(context_.prompts) + params_.max_steps;
  std::uint64_t measured = 0;
  for (const DType d : params_.dtype) measured = std::max(measured, memory_need(context_.config, d, length).total());
  const std::uint64_t need = memory_need(context_.config, dtype, length).total() + measured;
  if (need <= available_memory_bytes(context_.device))
    return context_.load(dtype, params_.backend.front(), params_.attention);
  context_.warnings.add(WarningCode::fp64_check_skipped, fmt::format("{} in {} needs {}", what_for, name_of(dtype),
                                                                     human_bytes(static_cast<double>(need))));
  return std::nullopt;
}

/// K and V of one step, which OFF computes anew; held one step at a time.
void TraceRun::kv_step(const Arms& arms, const Trajectory& t, const KvStates* fp64, std::int64_t step,
                       std::int32_t number, const std::string& pair_id, TraceSummary& summary) {
  const auto& sizes = context_.config.sizes;
  const auto i = static_cast<std::size_t>(step);
  const KvErrors errors = kv_errors(kv_of_on(t, step, sizes.n_layers), kv_of_off(arms, t.prefix(step)), fp64);
  const double kl = compare_logits(t.logits_on[i], t.logits_off[i]).kl_on_off_nats;
  summary.kv.add(number, step, t.n_prompt(), errors, kl, is_traced(step));
  if (!is_traced(step)) return;
  for (std::int64_t layer = 0; layer < sizes.n_layers; ++layer)
    for (std::int64_t head = 0; head < sizes.n_kv_heads; ++head) {
      TraceKvRecord record = kv_record(errors, step, t.n_prompt(), layer, head);
      record.pair_id = pair_id;
      context_.sink.add(record);
    }
}

void TraceRun::traced_step(const Arms& arms, const Trajectory& t, std::int64_t step, std::int32_t number,
                           const std::string& pair_id, TraceSummary& summary) {
  const auto& sizes = context_.config.sizes;
  const TracedStep traced(arms, t, step);
  auto records = traced.births();
  for (TraceBirthRecord& record : records) {
    record.pair_id = pair_id;
    context_.sink.add(record);
  }
  summary.births.add(number, records);
  summary.as_it_is.add(number, traced.mix_errors(false), sizes.n_heads / sizes.n_kv_heads);
  summary.stored_only.add(number, traced.mix_errors(true), sizes.n_heads / sizes.n_kv_heads);
  controls_.tap_changes_no_bit &= traced.tap_changed_no_bit();
  controls_.isolated_all_equal_gives_off &= traced.isolated_gave_off();
}

void TraceRun::prompt(const Arms& arms, const Condition& c, const PromptItem& item, std::int32_t number,
                      TraceSummary& summary) {
  const Trajectory t = trajectory_of(arms, params_, item);
  const std::string pair_id = fmt::format("{}/{}", c.name(), item.id);
  controls_.prefill_bit_equal &= prefill_is_bit_equal(t);
  std::optional<KvStates> fp64;
  // What is planted in an arm is not in the reference.
  if (fp64_) fp64 = kv_of_off(Arms(fp64_->decoder), t.prefix(t.n_steps() - 1));
  for (std::int64_t step = 1; step < t.n_steps(); ++step) {
    if (interrupted()) return;
    kv_step(arms, t, fp64 ? &*fp64 : nullptr, step, number, pair_id, summary);
    if (is_traced(step)) traced_step(arms, t, step, number, pair_id, summary);
  }
  context_.sink.commit();
}

void TraceRun::condition(const Decoder& decoder, const Condition& c) {
  const Arms arms = arms_of(decoder, context_);
  TraceSummary summary;
  const auto prompts = select_prompts(arms, params_, context_);
  context_.progress.stage(fmt::format("trace, {}", c.name()));
  std::int32_t n_done = 0;
  for (const PromptItem* item : prompts) {
    if (interrupted()) return;
    prompt(arms, c, *item, n_done, summary);
    context_.progress.update({++n_done, std::ssize(prompts), 0.0, 0.0});
  }
  context_.progress.end_stage();
  Json j = c.to_json();
  j["clock"] = name_of(Clock::forced);
  j["n_prompts"] = prompts.size();
  j.update(summary.kv.to_json());
  j.update(summary.births.to_json());
  j["gqa_real"] = {summary.as_it_is.row("as it is"), summary.stored_only.row("stored K and V only")};
  result_.conditions.push_back(std::move(j));
  result_.controls = to_json_value(controls_);
  context_.sink.checkpoint(result_);
}

/// Has nothing to do with the arms, so it is done once, and stands with the first condition.
void TraceRun::gqa() {
  std::optional<LoadedModel> base = fp64_ ? std::move(fp64_) : load_if_it_fits(DType::float32, kNoise);
  fp64_.reset();
  if (!base) return;
  const GqaResult r = run_gqa(context_, params_, base->decoder);
  if (!r.complete) return;
  const double tolerance = base->decoder.dtype() == DType::float64 ? 1e-10 : 1e-4;
  controls_.gqa_copies_max_rel = r.copies_max_rel;
  controls_.gqa_copies_are_the_function = r.copies_max_rel <= tolerance;
  controls_.gqa_attention_max_rel = r.attention_max_rel;
  controls_.gqa_attention_is_the_models = r.attention_max_rel <= tolerance;
  result_.conditions.front()["gqa"] = r.rows;
  result_.conditions.front()["gqa_by_layer"] = r.by_layer;
  result_.controls = to_json_value(controls_);
}

ExperimentResult TraceRun::execute() {
  fp64_ = load_if_it_fits(DType::float64, kReference);
  for_each_greedy_condition(context_, params_, result_,
                            [this](const LoadedModel& model, const Condition& c) { condition(model.decoder, c); });
  if (interrupted()) return std::move(result_);
  if (!params_.no_gqa) gqa();
  if (interrupted()) return std::move(result_);
  result_.verdict = trace_verdict(result_.conditions, controls_);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

void validate(const TraceParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const SelectionParams&>(params));
  if (params.step.empty()) fail_usage("--step: the list is empty");
  for (const std::int64_t step : params.step)
    if (step < 1 || step >= params.max_steps)
      fail_usage("--step: {} is not one of the steps 1…{} of --max-steps", step, params.max_steps - 1);
  if (std::set<std::int64_t>(params.step.begin(), params.step.end()).size() != params.step.size())
    fail_usage("--step: a step is given twice");
  if (params.gqa_prompts < 1) fail_usage("--gqa-prompts: {} is less than 1", params.gqa_prompts);
  if (params.gqa_draws < 1) fail_usage("--gqa-draws: {} is less than 1", params.gqa_draws);
  if (!(params.gqa_size > 0.0 && params.gqa_size < 1.0))
    fail_usage("--gqa-size: {} is not a relative size between 0 and 1", params.gqa_size);
}

ExperimentResult run_trace(Context& context, const TraceParams& params) {
  validate(params);
  warn_few_prompts(context);
  return TraceRun(context, params).execute();
}

}  // namespace kvdiv
