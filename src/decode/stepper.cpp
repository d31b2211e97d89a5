#include "kvdiv/decode/stepper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kvdiv/base/error.h"

namespace kvdiv {

at::Tensor Stepper::timed_forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache) {
  const auto start = std::chrono::steady_clock::now();
  ArmOutput out = planted_.forward(decoder, tokens, cache, tap_);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  n_tokens_computed_ += out.n_rows;
  ++n_calls_;
  return std::move(out.logits_V);
}

CachedStepper::CachedStepper(const Decoder& decoder, std::int64_t capacity, std::int64_t prefill_chunk)
    : decoder_(decoder), cache_(decoder.config(), decoder.dtype(), capacity), prefill_chunk_(prefill_chunk) {}

at::Tensor CachedStepper::feed(std::span<const TokenId> tokens) {
  last_.assign(tokens.begin(), tokens.end());
  length_before_last_ = cache_.length();
  return timed_forward(decoder_, tokens, &cache_);
}

at::Tensor CachedStepper::prefill(std::span<const TokenId> prompt) {
  if (prompt.empty()) fail(ErrorKind::internal, "prefill of an empty prompt");
  cache_.truncate(0);
  const auto chunk = prefill_chunk_ > 0 ? static_cast<std::size_t>(prefill_chunk_) : prompt.size();
  at::Tensor logits;
  for (std::size_t at = 0; at < prompt.size(); at += chunk)
    logits = feed(prompt.subspan(at, std::min(chunk, prompt.size() - at)));
  return logits;
}

at::Tensor CachedStepper::step(TokenId token) { return feed(std::span(&token, 1)); }

at::Tensor CachedStepper::repeat_last(Tap& tap) {
  cache_.truncate(length_before_last_);
  return planted().forward(decoder_, last_, &cache_, &tap).logits_V;
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
