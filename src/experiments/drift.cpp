#include "kvdiv/experiments/drift.h"

#include <algorithm>
#include <cmath>

#include "common_setup.h"
#include "drift_summary.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/states.h"

namespace kvdiv {
namespace {

constexpr std::int64_t kTrimmed = 3;

/// What is captured of one arm's step: the newest position of the residual stream, and its attention weights.
CaptureTap make_capture() {
  return CaptureTap(
      [](Site site, std::int64_t) {
        return site == Site::embedding || site == Site::block || site == Site::final_norm || site == Site::weights;
      },
      CaptureTap::Rows::last);
}

/// The newest token of an arm and where it stands.
struct Newest {
  TokenId token = 0;
  std::int64_t position = 0;
};

/// OFF's own text up to a step: ON's as far as they agree.
std::vector<TokenId> own_prefix(const Arms& arms, const Trajectory& t, std::int64_t step) {
  std::vector<TokenId> prefix = t.prompt;
  bool same = true;
  for (std::int64_t s = 0; s < step; ++s) {
    const auto i = static_cast<std::size_t>(s);
    prefix.push_back(argmax_token(same ? t.logits_off[i] : host_logits(arms.off(prefix))));
    same = same && prefix.back() == t.tokens[i];
  }
  return prefix;
}

class Drift {
 public:
  Drift(Context& context, const DriftParams& params) : context_(context), params_(params) {}
  ExperimentResult execute();

 private:
  void condition(const Decoder& decoder, const Condition& condition);
  void prompt(const Arms& arms, const Condition& condition, const PromptItem& prompt, DriftSummary& summary);
  bool states_are_equal(const Arms& arms, const Trajectory& trajectory) const;
  void layers(const CaptureTap& on, const CaptureTap& off, LayerRecord record, DriftSummary& summary);
  void heads(const CaptureTap& on, const CaptureTap& off, HeadRecord record, DriftSummary& summary);
  void require_aligned(const PromptItem& prompt, Newest on, Newest off) const;

  Context& context_;
  const DriftParams& params_;
  ExperimentResult result_;
  bool prefill_bit_equal_ = true;
};

bool Drift::states_are_equal(const Arms& arms, const Trajectory& t) const {
  CaptureTap on = make_capture(), off = make_capture();
  KvCache cache = arms.decoder().make_cache(t.n_prompt());
  arms.on(t.prompt, cache, &on);
  arms.off(t.prompt, &off);
  for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer)
    if (!on.at(Site::block, layer).equal(off.at(Site::block, layer))) return false;
  return prefill_is_bit_equal(t);
}

void Drift::require_aligned(const PromptItem& prompt, Newest on, Newest off) const {
  if (params_.unaligned || (on.token == off.token && on.position == off.position)) return;
  fail(ErrorKind::invalid_measurement,
       "prompt {}, step {}: ON's newest token is {} at position {}, OFF's {} at position {}: their states differ "
       "because "
       "the texts do.\nCompare at or before the flip or with --clock forced; --unaligned shows it all the same",
       prompt.id, params_.step, on.token, on.position, off.token, off.position);
}

void Drift::prompt(const Arms& arms, const Condition& c, const PromptItem& prompt, DriftSummary& summary) {
  SelectionParams selection = params_;
  selection.max_steps = params_.step + 1;
  const Trajectory t = trajectory_of(arms, selection, prompt);
  if (t.n_steps() <= params_.step) return summary.skip();  // the text ended before this step
  prefill_bit_equal_ = prefill_bit_equal_ && states_are_equal(arms, t);

  CaptureTap on = make_capture(), off = make_capture();
  std::vector<TokenId> prefix_off =
      params_.clock == Clock::free ? own_prefix(arms, t, params_.step) : t.prefix(params_.step);
  if (params_.unaligned && params_.clock == Clock::forced) prefix_off.erase(prefix_off.begin(), prefix_off.end() - 1);
  const auto prefix_on = t.prefix(params_.step);
  const Newest newest_on{prefix_on.back(), std::ssize(prefix_on) - 1};
  const Newest newest_off{prefix_off.back(), std::ssize(prefix_off) - 1};
  require_aligned(prompt, newest_on, newest_off);
  if (params_.step == 0) {
    KvCache cache = arms.decoder().make_cache(t.n_prompt());
    arms.on(t.prompt, cache, &on);
  } else {
    KvCache cache = t.cache_before(params_.step);
    arms.on(t.newest(params_.step), cache, &on);
  }
  arms.off(prefix_off, &off);

  LayerRecord layer;
  layer.pair_id = fmt::format("{}/{}", c.name(), prompt.id);
  layer.step = params_.step;
  layer.token_on = newest_on.token, layer.position_on = newest_on.position;
  layer.token_off = newest_off.token, layer.position_off = newest_off.position;
  layers(on, off, layer, summary);
  HeadRecord head;
  head.pair_id = layer.pair_id;
  head.step = params_.step;
  if (on.has(Site::weights, 0) && !params_.unaligned) heads(on, off, head, summary);
  context_.sink.commit();
}

void Drift::layers(const CaptureTap& on, const CaptureTap& off, LayerRecord record, DriftSummary& summary) {
  const auto n_layers = context_.config.sizes.n_layers;
  for (std::int64_t layer = 0; layer <= n_layers + 1; ++layer) {
    const Site site = layer == 0 ? Site::embedding : layer > n_layers ? Site::final_norm : Site::block;
    const std::int64_t at = layer == 0 ? 0 : layer > n_layers ? n_layers : layer - 1;
    const auto a = host_logits(on.at(site, at).reshape({-1})), b = host_logits(off.at(site, at).reshape({-1}));
    const StateDistance d = compare_states(a, b), trimmed = compare_states_trimmed(a, b, kTrimmed);
    record.layer = layer > n_layers ? Json("norm") : Json(layer);
    record.l2 = d.l2, record.rel_l2 = d.rel_l2, record.cosine = d.cosine, record.max_abs = d.max_abs;
    record.norm_on = d.norm_a, record.norm_off = d.norm_b;
    record.l2_trimmed = trimmed.l2, record.rel_l2_trimmed = trimmed.rel_l2;
    record.cosine_trimmed = trimmed.cosine, record.max_abs_trimmed = trimmed.max_abs;
    context_.sink.add(record);
    summary.add(record);
  }
}

void Drift::heads(const CaptureTap& on, const CaptureTap& off, HeadRecord record, DriftSummary& summary) {
  const auto& sizes = context_.config.sizes;
  const auto log_of = [](std::vector<double> weights) {
    for (double& w : weights) w = std::log(w);  // a weight of 0 becomes −inf, which compare_logits knows
    return weights;
  };
  for (std::int64_t layer = 0; layer < sizes.n_layers; ++layer) {
    const at::Tensor& a = on.at(Site::weights, layer);  // [1,H,1,S]; a windowed layer of ON holds fewer keys than OFF
    const at::Tensor& b = off.at(Site::weights, layer);
    const auto S = std::min(a.size(3), b.size(3));
    for (std::int64_t head = 0; head < sizes.n_heads; ++head) {
      const auto row = [&](const at::Tensor& w) {
        return host_logits(w.select(1, head).reshape({-1}).narrow(0, w.size(3) - S, S));
      };
      const auto w_on = row(a), w_off = row(b);
      record.layer = layer + 1;
      record.head = head;
      record.kv_head = head / (sizes.n_heads / sizes.n_kv_heads);
      record.kl_on_off_nats = compare_logits(log_of(w_on), log_of(w_off)).kl_on_off_nats;
      record.max_abs = compare_states(w_on, w_off).max_abs;
      context_.sink.add(record);
      summary.add(record);
    }
  }
}

void Drift::condition(const Decoder& decoder, const Condition& c) {
  const Arms arms = arms_of(decoder, context_);
  DriftSummary summary(context_.config.sizes);
  const auto prompts = select_prompts(arms, params_, context_);
  context_.progress.stage(fmt::format("drift, {}", c.name()));
  std::int64_t n_done = 0;
  for (const PromptItem* item : prompts) {
    if (interrupted()) return;
    prompt(arms, c, *item, summary);
    context_.progress.update({++n_done, std::ssize(prompts), 0.0, 0.0});
  }
  context_.progress.end_stage();
  Json j = c.to_json();
  j["clock"] = name_of(params_.clock);
  j["unaligned"] = params_.unaligned;
  j["step"] = params_.step;
  j.update(summary.to_json());
  result_.conditions.push_back(std::move(j));
  result_.controls = {{"prefill_bit_equal", prefill_bit_equal_}};
  context_.sink.checkpoint(result_);
}

ExperimentResult Drift::execute() {
  for_each_greedy_condition(context_, params_, result_,
                            [this](const LoadedModel& model, const Condition& c) { condition(model.decoder, c); });
  if (interrupted()) return std::move(result_);
  adjust_layer_tests(result_.conditions);
  result_.verdict = drift_verdict(result_.conditions, prefill_bit_equal_);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

void validate(const DriftParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const SelectionParams&>(params));
  if (params.step < 0) fail_usage("--step: {} is negative", params.step);
  if (params.clock == Clock::both) fail_usage("--clock: drift compares at one step: forced or free");
}

ExperimentResult run_drift(Context& context, const DriftParams& params) {
  validate(params);
  warn_few_prompts(context);
  return Drift(context, params).execute();
}

}  // namespace kvdiv
