#include "kvdiv/experiments/patch.h"

#include <algorithm>
#include <map>

#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/stats/metrics.h"
#include "patch_plan.h"
#include "patch_summary.h"
#include "patch_verdict.h"

namespace kvdiv {
namespace {

constexpr std::int64_t kControlPrompts = 2;
constexpr std::uint64_t kRandomSeed = 0x7061746368ull;

using Row = std::vector<double>;

double kl(const Row& on, const Row& off) { return compare_logits(on, off).kl_on_off_nats; }

class PatchRun {
 public:
  PatchRun(Context& context, const PatchParams& params) : context_(context), params_(params) {}
  ExperimentResult execute();

 private:
  /// One prompt in hand.
  struct Text {
    const Trajectory& t;
    std::int32_t number;  ///< place among the prompts of this run
    std::uint64_t seed;   ///< of the random patch: by prompt, so that order does not matter
    std::string pair_id;
    std::vector<double> kl_base;   ///< per step, forced clock
    std::vector<Row> logits_free;  ///< OFF on its own tokens; empty under the forced clock
  };
  void condition(const Decoder& decoder, const Condition& condition);
  void prompt(const Arms& arms, const Condition& c, const PromptItem& item, std::int32_t number, PatchSummary& summary);
  void step(const Arms& arms, const Text& text, std::int64_t step, PatchSummary& summary);
  void into_on(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c, const StepStates& donor,
               PatchSummary& summary);
  void into_off(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c, const StepStates& donor,
                PatchSummary& summary);
  void published(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on, PatchSummary& summary);
  Row published_logits(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c, const StepStates& on,
                       std::map<std::int64_t, Row>& by_layer);
  PatchEffect over_all_steps(const Arms& arms, const Text& text, std::int64_t step, const Row& patched) const;
  std::vector<Row> own_continuation(const Arms& arms, const Trajectory& t, std::int64_t step, const Row& logits) const;
  void control_self(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on, const StepStates& off);
  void control_stateless(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on);
  void record(const Text& text, const PatchCase& c, std::int64_t step, std::int64_t offset, const PatchEffect& effect);

  Context& context_;
  const PatchParams& params_;
  ExperimentResult result_;
  PatchControls controls_;
};

void PatchRun::record(const Text& text, const PatchCase& c, std::int64_t step, std::int64_t offset,
                      const PatchEffect& effect) {
  PatchRecord r;
  r.pair_id = text.pair_id;
  r.what = c.what;
  r.step = step;
  r.offset = offset;
  for (const std::int64_t layer : c.patch.layers) r.layers.push_back(layer + 1);
  r.heads = c.patch.heads;
  r.positions = c.patch.keys || c.patch.values ? std::string(name_of(c.patch.positions)) : "newest";
  r.direction = name_of(c.direction);
  r.kl_base_nats = effect.kl_base;
  r.kl_patched_nats = effect.kl_patched;
  r.pct_recovered = effect.pct_recovered();
  r.bit_equal = effect.bit_equal;
  context_.sink.add(r);
}

/// OFF's values into ON's cache: the patched step, and with `follow` every step after it.
void PatchRun::into_on(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c,
                       const StepStates& donor, PatchSummary& summary) {
  KvCache cache = text.t.cache_before(step);
  Row patched = host_logits(patched_on_step(arms, text.t, step, c.patch, donor, cache));
  const std::int64_t last = c.follow ? text.t.n_steps() - 1 : step;
  for (std::int64_t s = step; s <= last; ++s) {
    const auto i = static_cast<std::size_t>(s);
    if (s > step) patched = host_logits(arms.on(text.t.newest(s), cache));
    const StepMetrics m = compare_logits(patched, text.t.logits_off[i]);
    const PatchEffect effect{text.kl_base[i], m.kl_on_off_nats, m.bit_equal};
    record(text, c, step, s - step, effect);
    summary.add(c, step, s - step, text.number, effect);
    if (s == step && c.group == PatchGroup::everything) controls_.everything_recovers &= m.bit_equal;
  }
}

void PatchRun::into_off(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c,
                        const StepStates& donor, PatchSummary& summary) {
  const auto i = static_cast<std::size_t>(step);
  const StepMetrics m =
      compare_logits(text.t.logits_on[i], host_logits(patched_off_step(arms, text.t, step, c.patch, donor)));
  const PatchEffect effect{text.kl_base[i], m.kl_on_off_nats, m.bit_equal};
  record(text, c, step, 0, effect);
  summary.add(c, step, 0, text.number, effect);
  if (c.group == PatchGroup::everything) controls_.everything_recovers &= m.bit_equal;
}

/// OFF's logits of the steps after `step`, on its own tokens, if it chooses from `logits` there.
std::vector<Row> PatchRun::own_continuation(const Arms& arms, const Trajectory& t, std::int64_t step,
                                            const Row& logits) const {
  std::vector<Row> out;
  std::vector<TokenId> prefix = t.prefix(step);
  Row now = logits;
  for (std::int64_t s = step + 1; s < t.n_steps(); ++s) {
    prefix.push_back(argmax_token(now));
    const bool still_ons = std::equal(prefix.begin() + t.n_prompt(), prefix.end(), t.tokens.begin());
    now = still_ons ? t.logits_off[static_cast<std::size_t>(s)] : host_logits(arms.off(prefix));
    out.push_back(now);
  }
  return out;
}

/// The published figure: the mean over all steps of the text when one step of OFF was patched. OFF keeps nothing of it: a
/// later step differs only if OFF goes on with its own tokens and the patched step made it choose another one.
PatchEffect PatchRun::over_all_steps(const Arms& arms, const Text& text, std::int64_t step, const Row& patched) const {
  const auto at = static_cast<std::size_t>(step);
  PatchEffect sum;
  const bool is_free = params_.clock == Clock::free;
  const Row& unpatched = is_free ? text.logits_free[at] : text.t.logits_off[at];
  const bool other_token = is_free && argmax_token(patched) != argmax_token(unpatched);
  const auto after = other_token ? own_continuation(arms, text.t, step, patched) : std::vector<Row>{};
  for (std::size_t s = 0; s < text.kl_base.size(); ++s) {
    const double base = is_free ? kl(text.t.logits_on[s], text.logits_free[s]) : text.kl_base[s];
    sum.kl_base += base;
    if (s == at)
      sum.kl_patched += kl(text.t.logits_on[s], patched);
    else if (s > at && other_token)
      sum.kl_patched += kl(text.t.logits_on[s], after[s - at - 1]);
    else
      sum.kl_patched += base;
  }
  const auto n = static_cast<double>(text.kl_base.size());
  return {sum.kl_base / n, sum.kl_patched / n, false};
}

/// "Layers 1…l" put the same value behind block l as "layer l" does, and in OFF nothing else reaches the newest token's logits:
/// it is the same intervention. The first prompts run both, as a control; then one stands for both.
Row PatchRun::published_logits(const Arms& arms, const Text& text, std::int64_t step, const PatchCase& c,
                               const StepStates& on, std::map<std::int64_t, Row>& by_layer) {
  const std::int64_t last = c.patch.layers.back();
  const auto known = by_layer.find(last);
  if (known != by_layer.end() && text.number >= kControlPrompts) return known->second;
  Row patched = host_logits(patched_off_step(arms, text.t, step, c.patch, on));
  if (known != by_layer.end()) controls_.cumulative_equals_single &= compare_logits(patched, known->second).bit_equal;
  by_layer.try_emplace(last, patched);
  return patched;
}

void PatchRun::published(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on,
                         PatchSummary& summary) {
  const auto i = static_cast<std::size_t>(step);
  std::map<std::int64_t, Row> by_layer;
  for (const PatchCase& c : published_plan(context_.config.sizes, params_)) {
    const Row patched = published_logits(arms, text, step, c, on, by_layer);
    const StepMetrics m = compare_logits(text.t.logits_on[i], patched);
    const PatchEffect effect{text.kl_base[i], m.kl_on_off_nats, m.bit_equal};
    record(text, c, step, 0, effect);
    summary.add(c, step, 0, text.number, effect);
    summary.add_published(c, step, text.number, over_all_steps(arms, text, step, patched));
  }
}

/// Putting an arm's own values where they are changes no bit.
void PatchRun::control_self(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on,
                            const StepStates& off) {
  const auto i = static_cast<std::size_t>(step);
  const Patch patch = everything(context_.config.sizes);
  KvCache cache = text.t.cache_before(step);
  const Row again_on = host_logits(patched_on_step(arms, text.t, step, patch, on, cache));
  const Row again_off = host_logits(patched_off_step(arms, text.t, step, patch, off));
  controls_.self_patch_bit_equal &= compare_logits(again_on, text.t.logits_on[i]).bit_equal &&
                                    compare_logits(again_off, text.t.logits_off[i]).bit_equal;
}

/// After a patch of OFF, OFF's next step has the bits it had without.
void PatchRun::control_stateless(const Arms& arms, const Text& text, std::int64_t step, const StepStates& on) {
  if (step + 1 >= text.t.n_steps()) return;
  patched_off_step(arms, text.t, step, everything(context_.config.sizes), on);
  const Row next = host_logits(arms.off(text.t.prefix(step + 1)));
  controls_.off_is_stateless &= compare_logits(next, text.t.logits_off[static_cast<std::size_t>(step + 1)]).bit_equal;
}

void PatchRun::step(const Arms& arms, const Text& text, std::int64_t step, PatchSummary& summary) {
  const StepStates on = states_of_on(arms, text.t, step);
  published(arms, text, step, on, summary);
  if (step == 0) return;
  const StepStates off = states_of_off(arms, text.t, step);
  const StepStates random = random_states(on, off, text.seed);
  for (const PatchCase& c : direct_plan(context_.config.sizes, params_)) {
    if (interrupted()) return;
    if (c.direction == Direction::on_into_off)
      into_off(arms, text, step, c, on, summary);
    else
      into_on(arms, text, step, c, c.group == PatchGroup::random ? random : off, summary);
  }
  if (text.number >= kControlPrompts) return;
  control_self(arms, text, step, on, off);
  control_stateless(arms, text, step, on);
}

void PatchRun::prompt(const Arms& arms, const Condition& c, const PromptItem& item, std::int32_t number,
                      PatchSummary& summary) {
  const Trajectory t = trajectory_of(arms, params_, item);
  Text text{t,  number, kRandomSeed + static_cast<std::uint64_t>(item.index), fmt::format("{}/{}", c.name(), item.id),
            {}, {}};
  for (std::size_t s = 0; s < t.logits_on.size(); ++s) text.kl_base.push_back(kl(t.logits_on[s], t.logits_off[s]));
  if (params_.clock == Clock::free) {
    text.logits_free = own_continuation(arms, t, 0, t.logits_off.front());
    text.logits_free.insert(text.logits_free.begin(), t.logits_off.front());
  }
  controls_.prefill_bit_equal &= prefill_is_bit_equal(t);
  for (const std::int64_t s : params_.step)
    if (s < t.n_steps()) step(arms, text, s, summary);
  context_.sink.commit();
}

void PatchRun::condition(const Decoder& decoder, const Condition& c) {
  const Arms arms = arms_of(decoder, context_);
  PatchSummary summary(context_.config.sizes.n_layers);
  const auto prompts = select_prompts(arms, params_, context_);
  context_.progress.stage(fmt::format("patch, {}", c.name()));
  std::int32_t n_done = 0;
  for (const PromptItem* item : prompts) {
    if (interrupted()) return;
    prompt(arms, c, *item, n_done, summary);
    context_.progress.update({++n_done, std::ssize(prompts), 0.0, 0.0});
  }
  context_.progress.end_stage();
  Json j = c.to_json();
  j["clock"] = name_of(params_.clock);
  j["n_prompts"] = prompts.size();
  j.update(summary.to_json());
  result_.conditions.push_back(std::move(j));
  result_.controls = to_json(controls_, result_.conditions);
  context_.sink.checkpoint(result_);
}

ExperimentResult PatchRun::execute() {
  for_each_greedy_condition(context_, params_, result_,
                            [this](const LoadedModel& model, const Condition& c) { condition(model.decoder, c); });
  if (interrupted()) return std::move(result_);
  result_.verdict = patch_verdict(result_.conditions, controls_);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

ExperimentResult run_patch(Context& context, const PatchParams& params) {
  validate(params);
  for (const std::int64_t layer : params.layers.value_or(std::vector<std::int64_t>{}))
    if (layer < 1 || layer > context.config.sizes.n_layers)
      fail_usage("--layers: {} is not one of this model's layers 1…{}", layer, context.config.sizes.n_layers);
  for (const std::int64_t head : params.heads.value_or(std::vector<std::int64_t>{}))
    if (head < 0 || head >= context.config.sizes.n_kv_heads)
      fail_usage("--heads: {} is not one of this model's KV heads 0…{}", head, context.config.sizes.n_kv_heads - 1);
  warn_few_prompts(context);
  return PatchRun(context, params).execute();
}

}  // namespace kvdiv
