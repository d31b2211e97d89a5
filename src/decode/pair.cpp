#include "kvdiv/decode/pair.h"

#include <algorithm>
#include <cmath>

#include "kvdiv/decode/activations.h"
#include "kvdiv/decode/stepper.h"

namespace kvdiv {
namespace {

/// Logits on the host in FP64: exact for every compute dtype.
class HostLogits {
 public:
  std::span<const double> take(const at::Tensor& logits_V) {
    held_ = logits_V.to(at::kCPU, at::kDouble).contiguous();
    return {held_.const_data_ptr<double>(), static_cast<std::size_t>(held_.numel())};
  }

 private:
  at::Tensor held_;
};

bool all_finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

constexpr TokenId kNoToken = -1;

class PairDecoder {
 public:
  PairDecoder(const Decoder& decoder, const PairRequest& request, const StepObserver& observe)
      : decoder_(decoder),
        request_(request),
        observe_(observe),
        activations_(decoder.config().sizes.n_layers),
        on_(decoder, static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens, request.prefill_chunk),
        forced_(decoder),
        free_(decoder) {
    on_.set_planted(request.planted.on);
    for (FullStepper* s : {&forced_, &free_}) s->set_planted(request.planted.off);
    if (!request.record_activations) return;
    for (Stepper* s : std::initializer_list<Stepper*>{&on_, &forced_, &free_}) s->set_tap(&activations_);
  }

  PairOutcome run();

 private:
  bool wants_free() const { return request_.clock != Clock::forced; }
  bool wants_forced() const { return request_.clock != Clock::free; }
  bool is_eos(TokenId token) const {
    return std::find(request_.eos_ids.begin(), request_.eos_ids.end(), token) != request_.eos_ids.end();
  }
  bool on_goes_on(std::int64_t step) const { return step < request_.max_new_tokens && !on_ended_; }
  bool free_goes_on(std::int64_t step) const {
    return out_.flip_index && wants_free() && step < request_.max_new_tokens && !off_ended_;
  }

  void on_step(std::int64_t step);
  void same_prefix_step(std::int64_t step);
  void free_step(std::int64_t step);
  void flip_at(std::int64_t step);
  TokenId choose(Stepper& stepper, Arm arm, std::span<const double> logits, std::int64_t step);
  void finish();

  const Decoder& decoder_;
  const PairRequest& request_;
  const StepObserver& observe_;
  ActivationTap activations_;
  CachedStepper on_;
  FullStepper forced_, free_;  ///< OFF on ON's tokens; OFF on its own, from the flip on
  HostLogits host_on_, host_off_, host_free_;
  std::span<const double> logits_on_;
  PairOutcome out_;
  bool on_ended_ = false, off_ended_ = false, stopped_ = false;
  std::int64_t n_prompt_ = 0;
  TokenId token_on_ = kNoToken, previous_on_ = kNoToken;
};

PairOutcome PairDecoder::run() {
  n_prompt_ = static_cast<std::int64_t>(request_.prompt.size());
  for (std::int64_t step = 0; !stopped_ && (on_goes_on(step) || free_goes_on(step)); ++step) {
    const bool with_on = on_goes_on(step);
    const bool was_flipped = out_.flip_index.has_value();
    // The free clock's step needs ON's logits of this step, so ON is computed before either OFF. A step at which ON is not
    // finite is still shown beside OFF: the record says so, and the pair stops.
    if (with_on) on_step(step);
    if (with_on && (wants_forced() || !was_flipped)) same_prefix_step(step);
    if (was_flipped && free_goes_on(step)) free_step(step);
    if (with_on && is_eos(token_on_)) on_ended_ = true;
  }
  finish();
  return std::move(out_);
}

void PairDecoder::on_step(std::int64_t step) {
  const at::Tensor logits = step == 0 ? on_.prefill(request_.prompt) : on_.step(token_on_);
  out_.n_tokens_on.expected += step == 0 ? n_prompt_ : 1;
  previous_on_ = token_on_;
  logits_on_ = host_on_.take(logits);
  token_on_ = choose(on_, Arm::on, logits_on_, step);
  if (token_on_ != kNoToken) out_.tokens_on.push_back(token_on_);
}

/// OFF on ON's tokens: before the flip this is also OFF on its own.
void PairDecoder::same_prefix_step(std::int64_t step) {
  const at::Tensor logits = step == 0 ? forced_.prefill(request_.prompt) : forced_.step(previous_on_);
  out_.n_tokens_off.expected += n_prompt_ + step;
  const auto logits_off = host_off_.take(logits);
  const TokenId token_off = choose(forced_, Arm::off, logits_off, step);
  const bool before_flip = !out_.flip_index;
  observe_({before_flip ? Clock::both : Clock::forced, step, true, logits_on_, logits_off, token_on_, token_off});
  if (token_off == kNoToken) return;
  if (before_flip || !wants_free()) {
    out_.tokens_off.push_back(token_off);
    off_ended_ = is_eos(token_off);
  }
  if (before_flip && !stopped_ && token_off != token_on_) flip_at(step);
}

void PairDecoder::flip_at(std::int64_t step) {
  out_.flip_index = step;
  if (!wants_free()) return;
  std::vector<TokenId> prefix(request_.prompt.begin(), request_.prompt.end());
  prefix.insert(prefix.end(), out_.tokens_off.begin(), out_.tokens_off.end() - 1);
  free_.set_prefix(prefix);
}

/// OFF on its own tokens after the flip. Compared with ON's logits of the same step while ON still decodes.
void PairDecoder::free_step(std::int64_t step) {
  const at::Tensor logits = free_.step(out_.tokens_off.back());
  out_.n_tokens_off.expected += n_prompt_ + step;
  const auto logits_off = host_free_.take(logits);
  const TokenId token_off = choose(free_, Arm::off, logits_off, step);
  if (on_goes_on(step)) observe_({Clock::free, step, false, logits_on_, logits_off, token_on_, token_off});
  if (token_off == kNoToken) return;
  out_.tokens_off.push_back(token_off);
  off_ended_ = is_eos(token_off);
}

/// The token, or kNoToken if the logits are not finite: then the pair stops, and the layer where it began is looked up.
TokenId PairDecoder::choose(Stepper& stepper, Arm arm, std::span<const double> logits, std::int64_t step) {
  if (all_finite(logits)) return request_.choose(logits, step);
  stopped_ = true;
  if (out_.nonfinite) return kNoToken;
  const auto n_layers = decoder_.config().sizes.n_layers;
  ActivationTap probe(n_layers);
  stepper.repeat_last(probe);
  NonfiniteStop stop{arm, step, probe.first_nonfinite_layer().value_or(n_layers + 2), 0.0};
  for (std::int64_t layer = 0; layer < std::min(stop.layer, n_layers + 2); ++layer)
    stop.max_abs_before = std::max(stop.max_abs_before, probe.max_abs()[static_cast<std::size_t>(layer)]);
  out_.nonfinite = stop;
  return kNoToken;
}

void PairDecoder::finish() {
  const auto finish_of = [&](const std::vector<TokenId>& tokens) {
    if (stopped_) return Finish::nonfinite;
    return !tokens.empty() && is_eos(tokens.back()) ? Finish::eos : Finish::length;
  };
  out_.finish_on = finish_of(out_.tokens_on);
  out_.finish_off = finish_of(out_.tokens_off);
  out_.n_tokens_on.computed = on_.n_tokens_computed();
  out_.n_tokens_off.computed = forced_.n_tokens_computed() + free_.n_tokens_computed();
  out_.seconds_on = on_.seconds();
  out_.seconds_off = forced_.seconds() + free_.seconds();
  out_.n_steps_on = on_.n_calls();
  out_.n_steps_off = forced_.n_calls() + free_.n_calls();
  if (request_.record_activations) out_.max_abs_activation = activations_.max_abs();
}

}  // namespace

PairOutcome decode_pair(const Decoder& decoder, const PairRequest& request, const StepObserver& observe) {
  return PairDecoder(decoder, request, observe).run();
}

}  // namespace kvdiv
