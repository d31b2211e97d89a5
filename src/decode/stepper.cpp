#include "kvdiv/decode/stepper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kvdiv/base/error.h"

namespace kvdiv {

ArmOutput Stepper::timed(c10::Device device, const std::function<ArmOutput()>& call) {
  if (const DeviceModule* gpu = module_of(device); gpu != nullptr && !watch_) watch_ = gpu->stopwatch();
  if (watch_) watch_->begin();
  const auto start = std::chrono::steady_clock::now();
  ArmOutput out = call();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (watch_) watch_->end();
  n_tokens_computed_ += out.n_rows;
  ++n_calls_;
  return out;
}

at::Tensor Stepper::timed_forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache) {
  return timed(decoder.device(), [&] { return planted_.forward(decoder, tokens, cache, tap_); }).logits_V;
}

CachedStepper::CachedStepper(const Decoder& decoder, std::int64_t capacity, std::int64_t prefill_chunk,
                             StepGraphs* graphs)
    : decoder_(decoder), graphs_(graphs), prefill_chunk_(prefill_chunk) {
  if (graphs == nullptr) own_cache_ = decoder.make_cache(capacity);
  if (graphs != nullptr && graphs->cache().capacity() < capacity)
    fail(ErrorKind::internal, "a cache of {} positions for a text of {}", graphs->cache().capacity(), capacity);
}

at::Tensor CachedStepper::feed(std::span<const TokenId> tokens) {
  last_.assign(tokens.begin(), tokens.end());
  length_before_last_ = cache().length();
  return timed_forward(decoder_, tokens, &cache());
}

at::Tensor CachedStepper::prefill(std::span<const TokenId> prompt) {
  if (prompt.empty()) fail(ErrorKind::internal, "prefill of an empty prompt");
  cache().truncate(0);
  const auto chunk = prefill_chunk_ > 0 ? static_cast<std::size_t>(prefill_chunk_) : prompt.size();
  at::Tensor logits;
  for (std::size_t at = 0; at < prompt.size(); at += chunk)
    logits = feed(prompt.subspan(at, std::min(chunk, prompt.size() - at)));
  return logits;
}

at::Tensor CachedStepper::step(TokenId token) {
  if (graphs_ == nullptr || planted().tap != nullptr || planted().fault != nullptr) return feed(std::span(&token, 1));
  last_.assign(1, token);
  length_before_last_ = cache().length();
  return timed(decoder_.device(), [&] { return ArmOutput{graphs_->step(token, tap()), 1}; }).logits_V;
}

at::Tensor CachedStepper::repeat_last(Tap& tap) {
  cache().truncate(length_before_last_);
  return planted().forward(decoder_, last_, &cache(), &tap).logits_V;
}

at::Tensor FullStepper::prefill(std::span<const TokenId> prompt) {
  if (prompt.empty()) fail(ErrorKind::internal, "prefill of an empty prompt");
  set_prefix(prompt);
  return timed_forward(decoder_, prefix_, nullptr);
}

at::Tensor FullStepper::step(TokenId token) {
  prefix_.push_back(token);
  return timed_forward(decoder_, prefix_, nullptr);
}

at::Tensor FullStepper::repeat_last(Tap& tap) { return planted().forward(decoder_, prefix_, nullptr, &tap).logits_V; }

}  // namespace kvdiv
