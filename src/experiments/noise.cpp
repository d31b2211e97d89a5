#include "kvdiv/experiments/noise.h"

#include <algorithm>

#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/stats/metrics.h"
#include "noise_plan.h"
#include "noise_reference.h"
#include "noise_summary.h"

namespace kvdiv {
namespace {

constexpr std::int64_t kControlPrompts = 2;
constexpr std::int64_t kHalfMantissaBits = 10;

bool is_fine(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

class NoiseRun {
 public:
  NoiseRun(Context& context, const NoiseParams& params)
      : context_(context), params_(params), plan_(noise_plan(params)) {}
  ExperimentResult execute();

 private:
  /// The models that FP16's own error is the difference of, where the condition's own is not one of them.
  struct OtherModels {
    std::optional<LoadedModel> fine, half;
  };
  OtherModels load_others(const Condition& c);
  void condition(const LoadedModel& model, const Condition& c);
  Trajectory clean_trajectory(const Arms& arms, const PromptItem& item) const;
  /// False if there was an interrupt.
  bool prompt(const Arms& arms, const Condition& c, const PromptItem& item, const Trajectory& t, NoiseSummary& summary);
  NoiseRecord measure(const Arms& arms, const Trajectory& t, const NoiseCase& noise, std::int64_t prompt_index) const;
  void reference(const Trajectory& t, const OtherModels& others, std::int64_t prompt_index, NoiseReference& fp16) const;
  Json describe(const Condition& c, std::int64_t n_measured, const NoiseSummary& summary,
                const NoiseReference& fp16) const;
  void control(const Arms& arms, const Trajectory& t, std::int64_t prompt_index);

  Context& context_;
  const NoiseParams& params_;
  const std::vector<NoiseCase> plan_;
  ExperimentResult result_;
  std::int64_t n_texts_ = 0;  ///< noisy texts done in this condition
  std::int64_t n_prompts_ = 0;
  bool zero_noise_bit_equal_ = true, repeat_bit_equal_ = true;
};

/// The arm that is measured is ON alone; OFF is not decoded.
Trajectory NoiseRun::clean_trajectory(const Arms& arms, const PromptItem& item) const {
  TrajectoryRequest request;
  request.prompt = item.ids;
  request.max_steps = params_.max_steps;
  if (!params_.ignore_eos) request.eos_ids = context_.config.eos_ids;
  request.with_off = false;
  return decode_trajectory(arms, request);
}

NoiseRecord NoiseRun::measure(const Arms& arms, const Trajectory& t, const NoiseCase& noise,
                              std::int64_t prompt_index) const {
  NoiseRecord r;
  r.what = name_of(noise.what);
  r.kind = name_of(noise.kind);
  if (noise.kind == NoiseKind::gaussian)
    r.size = noise.size, r.noise_seed = noise.seed;
  else
    r.mantissa_bits = noise.bits;
  RelativeChange change(context_.config.sizes.n_layers);
  double kl_sum = 0.0;
  walk_with_noise(arms, t, noise.on(prompt_index), change, [&](std::int64_t step, const std::vector<double>& logits) {
    const StepMetrics m = compare_logits(t.logits_on[static_cast<std::size_t>(step)], logits);
    ++r.n_steps;
    if (!m.top1_equal) {
      const bool is_tie = m.tie_on || m.tie_off;
      ++(is_tie ? r.tie_flips : r.flips);
      if (!is_tie && !r.first_flip) r.first_flip = step;
    }
    kl_sum += m.kl_on_off_nats;
    r.kl_max_nats = std::max(r.kl_max_nats, m.kl_on_off_nats);
    r.max_abs_dlogit = std::max(r.max_abs_dlogit, m.max_abs_dlogit);
  });
  r.kl_mean_nats = kl_sum / static_cast<double>(r.n_steps);
  r.stored_size = change.by_norm();
  r.stored_rms = change.by_element();
  return r;
}

bool NoiseRun::prompt(const Arms& arms, const Condition& c, const PromptItem& item, const Trajectory& t,
                      NoiseSummary& summary) {
  for (const NoiseCase& noise : plan_) {
    if (interrupted()) return false;
    NoiseRecord r = measure(arms, t, noise, item.index);
    r.pair_id = fmt::format("{}/{}", c.name(), item.id);
    context_.sink.add(r);
    summary.add(noise, item.index, r);
    context_.progress.update({++n_texts_, n_prompts_ * std::ssize(plan_), 0.0, 0.0});
  }
  context_.sink.commit();
  return true;
}

/// No noise through the very same path changes no bit, and the same noise gives the same bits twice.
void NoiseRun::control(const Arms& arms, const Trajectory& t, std::int64_t prompt_index) {
  const auto logits_of = [&](const NoiseCase& noise) {
    std::vector<std::vector<double>> out{t.logits_on.front()};
    RelativeChange change(context_.config.sizes.n_layers);
    walk_with_noise(arms, t, noise.on(prompt_index), change,
                    [&](std::int64_t, const std::vector<double>& logits) { out.push_back(logits); });
    return out;
  };
  const auto same = [](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return compare_logits(x, y).bit_equal; });
  };
  for (const NoiseWhat what : {NoiseWhat::k, NoiseWhat::v, NoiseWhat::kv})
    zero_noise_bit_equal_ &= same(t.logits_on, logits_of({what, NoiseKind::gaussian, 0.0}));
  repeat_bit_equal_ &= same(logits_of(plan_.back()), logits_of(plan_.back()));
}

NoiseRun::OtherModels NoiseRun::load_others(const Condition& c) {
  OtherModels others;
  const auto load = [&](DType dtype) {
    require_memory(context_.config, dtype, longest_prompt(context_.prompts) + params_.max_steps, context_.device);
    return context_.load(dtype, c.backend, params_.attention);
  };
  if (!is_fine(c.dtype)) others.fine = load(DType::float32);
  if (c.dtype != DType::float16) others.half = load(DType::float16);
  return others;
}

void NoiseRun::reference(const Trajectory& t, const OtherModels& others, std::int64_t prompt_index,
                         NoiseReference& fp16) const {
  std::optional<WalkedText> fine, half;
  if (others.fine) fine = walk_along(arms_of(others.fine->decoder, context_), t);
  if (others.half) half = walk_along(arms_of(others.half->decoder, context_), t);
  fp16.add(prompt_index, {fine ? fine->cache : t.cache, fine ? fine->logits : t.logits_on, half ? half->cache : t.cache,
                          half ? half->logits : t.logits_on});
}

Json NoiseRun::describe(const Condition& c, std::int64_t n_measured, const NoiseSummary& summary,
                        const NoiseReference& fp16) const {
  Json j = c.to_json();
  j["n_prompts"] = n_measured;
  j["n_ended_at_once"] = n_prompts_ - n_measured;
  j["note"] = is_fine(c.dtype) ? Json(nullptr)
                               : Json(fmt::format("noise below the resolution of {} is partly rounded away; "
                                                  "relative_size_stored is what is left of it",
                                                  name_of(c.dtype)));
  j.update(summary.to_json(fp16));
  j["fp16_own_size"] = fp16.rows();
  for (Json& row : j["fp16_own_size"])
    if (row["error"] == "stored in FP16" && is_fine(c.dtype))
      row.update(summary.rates_of_rounding(*find_enum<NoiseWhat>(row["what"].get<std::string>()), kHalfMantissaBits));
  return j;
}

void NoiseRun::condition(const LoadedModel& model, const Condition& c) {
  const Arms arms = arms_of(model.decoder, context_);
  const OtherModels others = load_others(c);
  NoiseSummary summary;
  NoiseReference fp16(context_.config.sizes.n_layers);
  const auto prompts = select_prompts(arms, params_, context_);
  context_.progress.stage(fmt::format("noise, {}", c.name()));
  n_texts_ = 0;
  n_prompts_ = std::ssize(prompts);
  std::int64_t n_measured = 0;
  for (const PromptItem* item : prompts) {
    if (interrupted()) return;
    const Trajectory t = clean_trajectory(arms, *item);
    if (t.n_steps() < 2) continue;  // the text ended at once: nothing of it attends to a cache
    if (n_measured < kControlPrompts) control(arms, t, item->index);
    reference(t, others, item->index, fp16);
    if (!prompt(arms, c, *item, t, summary)) return;
    ++n_measured;
  }
  context_.progress.end_stage();
  result_.conditions.push_back(describe(c, n_measured, summary, fp16));
  result_.controls = {{"zero_noise_bit_equal", zero_noise_bit_equal_}, {"repeat_bit_equal", repeat_bit_equal_}};
  context_.sink.checkpoint(result_);
}

ExperimentResult NoiseRun::execute() {
  for_each_greedy_condition(context_, params_, result_,
                            [this](const LoadedModel& model, const Condition& c) { condition(model, c); });
  if (interrupted()) return std::move(result_);
  result_.verdict = noise_verdict(result_.conditions, result_.controls);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

ExperimentResult run_noise(Context& context, const NoiseParams& params) {
  validate(params);
  warn_few_prompts(context);
  return NoiseRun(context, params).execute();
}

}  // namespace kvdiv
