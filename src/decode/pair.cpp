#include "kvdiv/decode/pair.h"

#include <algorithm>
#include <cmath>

#include "kvdiv/decode/activations.h"
#include "kvdiv/decode/stepper.h"
#include "kvdiv/numerics/device.h"

namespace kvdiv {
namespace {

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
        gpu_(module_of(decoder.device())),
        on_(decoder, static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens, request.prefill_chunk,
            request.graphs),
        forced_(decoder),
        free_(decoder) {
    on_.set_planted(request.planted.on);
    for (FullStepper* s : {&forced_, &free_}) s->set_planted(request.planted.off);
    for (Stepper* s : std::initializer_list<Stepper*>{&on_, &forced_, &free_}) s->set_tap(request.activations);
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

  /// A row of logits, who computed it, and the token that was chosen from it.
  struct Side {
    Stepper& stepper;
    Arm arm;
    LogitsRow row = {};
    bool is_new = false;                ///< computed in this step
    std::optional<TokenId> known = {};  ///< the choice, where the device has made it
    TokenId token = kNoToken;
  };

  void compute(std::int64_t step);
  void compare_on_device();
  void same_prefix_step(std::int64_t step);
  void free_step(std::int64_t step);
  void flip_at(std::int64_t step);
  TokenId choose(Side& side, std::int64_t step);
  void finish();

  const Decoder& decoder_;
  const PairRequest& request_;
  const StepObserver& observe_;
  const DeviceModule* gpu_;
  CachedStepper on_;
  FullStepper forced_, free_;  ///< OFF on ON's tokens; OFF on its own, from the flip on
  Side side_on_{on_, Arm::on}, side_off_{forced_, Arm::off}, side_free_{free_, Arm::off};
  std::optional<StepMetrics> metrics_off_, metrics_free_;  ///< of ON and each OFF, where the device has compared them
  PairOutcome out_;
  bool on_ended_ = false, off_ended_ = false, stopped_ = false;
  std::int64_t n_prompt_ = 0;
};

PairOutcome PairDecoder::run() {
  n_prompt_ = static_cast<std::int64_t>(request_.prompt.size());
  for (std::int64_t step = 0; !stopped_ && (on_goes_on(step) || free_goes_on(step)); ++step) {
    compute(step);
    if (gpu_ != nullptr) compare_on_device();
    // A step at which ON is not finite is still shown beside OFF: the record says so, and the pair stops.
    if (side_on_.is_new) {
      side_on_.token = choose(side_on_, step);
      if (side_on_.token != kNoToken) out_.tokens_on.push_back(side_on_.token);
    }
    if (side_off_.is_new) same_prefix_step(step);
    if (side_free_.is_new) free_step(step);
    if (side_on_.is_new && is_eos(side_on_.token)) on_ended_ = true;
  }
  finish();
  return std::move(out_);
}

/// The step's forward calls: each arm is fed what was chosen at the step before, so none waits for another's choice.
void PairDecoder::compute(std::int64_t step) {
  const auto put = [](Side& side, at::Tensor logits_V) {
    side.row.set(std::move(logits_V));
    side.known.reset();
    side.is_new = true;
  };
  const bool with_on = on_goes_on(step), was_flipped = out_.flip_index.has_value();
  const bool with_free = was_flipped && free_goes_on(step);
  const TokenId previous_on = side_on_.token;
  side_on_.is_new = side_off_.is_new = side_free_.is_new = false;
  if (with_on) {
    put(side_on_, step == 0 ? on_.prefill(request_.prompt) : on_.step(previous_on));
    out_.n_tokens_on.expected += step == 0 ? n_prompt_ : 1;
  }
  if (with_on && (wants_forced() || !was_flipped)) {
    put(side_off_, step == 0 ? forced_.prefill(request_.prompt) : forced_.step(previous_on));
    out_.n_tokens_off.expected += n_prompt_ + step;
  }
  if (with_free) {
    put(side_free_, free_.step(out_.tokens_off.back()));
    out_.n_tokens_off.expected += n_prompt_ + step;
  }
}

/// What the step's rows tell, in one transfer; the rows themselves only if a token is to be drawn from them.
void PairDecoder::compare_on_device() {
  std::vector<LogitPair> pairs;
  std::vector<std::pair<Side*, Side*>> sides;
  const auto add = [&](Side& on, Side* off) {
    pairs.push_back({on.row.tensor(), off != nullptr ? off->row.tensor() : at::Tensor()});
    sides.emplace_back(&on, off);
  };
  if (side_off_.is_new) add(side_on_, &side_off_);
  if (side_free_.is_new) side_on_.is_new ? add(side_on_, &side_free_) : add(side_free_, nullptr);
  if (pairs.empty()) add(side_on_, nullptr);
  std::vector<std::vector<double>> rows;
  const std::vector<StepMetrics> metrics = gpu_->compare(pairs, request_.greedy ? nullptr : &rows);
  std::size_t row = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [on, off] = sides[i];
    if (!request_.greedy) on->row.put_host(std::move(rows[row++]));
    if (off != nullptr && !request_.greedy) off->row.put_host(std::move(rows[row++]));
    if (off == &side_off_) metrics_off_ = metrics[i];
    if (off == &side_free_) metrics_free_ = metrics[i];
    if (!request_.greedy || metrics[i].n_nonfinite != 0) continue;
    on->known = static_cast<TokenId>(metrics[i].top1_on);
    if (off != nullptr) off->known = static_cast<TokenId>(metrics[i].top1_off);
  }
}

/// OFF on ON's tokens: before the flip this is also OFF on its own.
void PairDecoder::same_prefix_step(std::int64_t step) {
  const TokenId token_off = choose(side_off_, step);
  const bool before_flip = !out_.flip_index;
  observe_({before_flip ? Clock::both : Clock::forced, step, true, &side_on_.row, &side_off_.row, side_on_.token,
            token_off, metrics_off_});
  if (token_off == kNoToken) return;
  if (before_flip || !wants_free()) {
    out_.tokens_off.push_back(token_off);
    off_ended_ = is_eos(token_off);
  }
  if (before_flip && !stopped_ && token_off != side_on_.token) flip_at(step);
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
  const TokenId token_off = choose(side_free_, step);
  if (side_on_.is_new)
    observe_({Clock::free, step, false, &side_on_.row, &side_free_.row, side_on_.token, token_off, metrics_free_});
  if (token_off == kNoToken) return;
  out_.tokens_off.push_back(token_off);
  off_ended_ = is_eos(token_off);
}

/// The token, or kNoToken if the logits are not finite: then the pair stops, and the layer where it began is looked up.
TokenId PairDecoder::choose(Side& side, std::int64_t step) {
  if (side.known) return *side.known;
  const auto logits = side.row.host();
  if (all_finite(logits)) return request_.choose(logits, step);
  stopped_ = true;
  if (out_.nonfinite) return kNoToken;
  const auto n_layers = decoder_.config().sizes.n_layers;
  ActivationTap probe(n_layers, decoder_.device());
  side.stepper.repeat_last(probe);
  NonfiniteStop stop{side.arm, step, probe.first_nonfinite_layer().value_or(n_layers + 2), 0.0};
  const std::vector<double> max_abs = probe.max_abs();
  for (std::int64_t layer = 0; layer < std::min(stop.layer, n_layers + 2); ++layer)
    stop.max_abs_before = std::max(stop.max_abs_before, max_abs[static_cast<std::size_t>(layer)]);
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
}

}  // namespace

void LogitsRow::set(at::Tensor logits_V) {
  tensor_ = std::move(logits_V);
  host_.clear();
}

std::span<const double> LogitsRow::host() {
  if (host_.empty()) host_ = host_logits(tensor_);
  return host_;
}

PairOutcome decode_pair(const Decoder& decoder, const PairRequest& request, const StepObserver& observe) {
  return PairDecoder(decoder, request, observe).run();
}

}  // namespace kvdiv
