// Faulty arms that depart from the model, from the positions, or from the text.
#include "fault_arms.h"

#include <algorithm>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/decode/capture.h"

namespace kvdiv {
namespace {

/// A call of one token behind stored ones.
bool is_decode_step(std::span<const TokenId> tokens, const KvCache* cache) {
  return cache != nullptr && cache->length() > 0 && tokens.size() == 1;
}

ModelConfig changed_config(ModelConfig config, const FaultSpec& spec) {
  Traits& traits = config.traits;
  std::optional<std::int64_t> window;
  for (const auto& w : traits.windows)
    if (w) window = w;
  switch (spec.fault) {
    case Fault::window_off_by_one:
      for (auto& w : traits.windows)
        if (w) *w += spec.shift;
      break;
    case Fault::window_ignored:
      std::fill(traits.windows.begin(), traits.windows.end(), std::nullopt);
      break;
    case Fault::layers_swapped:
      for (auto& w : traits.windows) w = w ? std::nullopt : window;
      break;
    case Fault::cap_dropped:
      traits.attention_cap.reset();
      break;
    case Fault::eps_changed:
      config.rms_norm_eps *= spec.factor;
      break;
    case Fault::norm_order_changed:
      traits.norm_cast = traits.norm_cast == NormCast::before_weight ? NormCast::after_weight : NormCast::before_weight;
      break;
    default:
      fail(ErrorKind::internal, "fault {} is none of the model's", name_of(spec.fault));
  }
  return config;
}

class OtherModel final : public ArmFault {
 public:
  explicit OtherModel(const FaultSpec& spec) : spec_(spec) {}
  ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) override {
    const Decoder& used = is_decode_step(tokens, cache) ? changed(decoder) : decoder;
    return {used.forward(tokens, cache, tap), std::ssize(tokens)};
  }

 private:
  /// Made once a decoder. Both are handles, so that the address of a model that is gone cannot be taken for a new one's.
  const Decoder& changed(const Decoder& decoder) {
    if (!base_ || !base_->is_same_model(decoder)) {
      base_ = decoder;
      changed_ = decoder.changed(changed_config(decoder.config(), spec_));
    }
    return *changed_;
  }

  FaultSpec spec_;
  std::optional<Decoder> base_, changed_;
};

class OtherPositions final : public ArmFault {
 public:
  explicit OtherPositions(const FaultSpec& spec) : spec_(spec) {}
  ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) override {
    const std::int64_t before = cache != nullptr ? cache->length() : 0;
    if (is_decode_step(tokens, cache)) return {decoder.forward(tokens, cache, tap, in_decode(before)), 1};
    n_prompt_ = before + std::ssize(tokens);
    if (spec_.fault == Fault::mask_missing_in_chunk) return in_chunks(decoder, tokens, cache, tap);
    return {decoder.forward(tokens, cache, tap), std::ssize(tokens)};
  }

 private:
  Departure in_decode(std::int64_t position) const {
    Departure d;
    if (spec_.fault == Fault::rotary_off_by_one) d.rotary_first = position + spec_.shift;
    if (spec_.fault == Fault::positions_restart) d.rotary_first = position - n_prompt_;
    return d;
  }

  ArmOutput in_chunks(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) const {
    Departure d;
    d.causal = spec_.chunk == 0 && cache->length() == 0;
    const std::size_t chunk = spec_.chunk > 0 ? static_cast<std::size_t>(spec_.chunk) : tokens.size();
    ArmOutput out{{}, std::ssize(tokens)};
    for (std::size_t at = 0; at < tokens.size(); at += chunk)
      out.logits_V = decoder.forward(tokens.subspan(at, std::min(chunk, tokens.size() - at)), cache, tap, d);
    return out;
  }

  FaultSpec spec_;
  std::int64_t n_prompt_ = 0;
};

class OtherTokens final : public ArmFault {
 public:
  explicit OtherTokens(const FaultSpec& spec) : spec_(spec) {}
  ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) override {
    if (spec_.fault == Fault::last_position_wrong) return earlier_position(decoder, tokens, tap);
    const std::vector<TokenId> fed = spec_.fault == Fault::doubled_bos ? doubled(tokens, cache) : shortened(tokens);
    return {decoder.forward(fed, cache, tap), std::ssize(fed)};
  }

 private:
  static std::vector<TokenId> doubled(std::span<const TokenId> tokens, const KvCache* cache) {
    std::vector<TokenId> fed(tokens.begin(), tokens.end());
    if (cache->length() == 0) fed.insert(fed.begin(), fed.front());
    return fed;
  }

  /// A prefix that does not go on from the prompt in hand is the prompt of a new text.
  std::vector<TokenId> shortened(std::span<const TokenId> prefix) {
    const bool goes_on = prefix.size() > prompt_.size() && !prompt_.empty() &&
                         std::equal(prompt_.begin(), prompt_.end(), prefix.begin());
    if (!goes_on) prompt_.assign(prefix.begin(), prefix.end());
    const std::size_t n_dropped = !goes_on                                  ? 0
                                  : spec_.fault == Fault::newest_token_only ? prefix.size() - 1
                                                                            : prompt_.size();
    return {prefix.begin() + static_cast<std::ptrdiff_t>(n_dropped), prefix.end()};
  }

  ArmOutput earlier_position(const Decoder& decoder, std::span<const TokenId> prefix, Tap* tap) const {
    const std::int64_t n = std::ssize(prefix), shift = std::min(spec_.shift, n - 1);
    bool is_replaced = false;
    EditTap edit([](Site site, std::int64_t) { return site == Site::final_norm; },
                 [&](Site site, std::int64_t, const at::Tensor& x_BTC) {
                   if (x_BTC.size(1) <= shift) return x_BTC;
                   is_replaced = true;
                   return with_last_row(site, x_BTC, x_BTC.narrow(1, x_BTC.size(1) - 1 - shift, 1));
                 });
    TapChain chain{&edit, tap};
    at::Tensor logits_V = decoder.forward(prefix, nullptr, chain.get());
    // A decoder that computes the last row only has no other to give: the prefix up to the row has it at its end.
    if (!is_replaced) logits_V = decoder.forward(prefix.first(static_cast<std::size_t>(n - shift)), nullptr, tap);
    return {logits_V, n};
  }

  FaultSpec spec_;
  std::vector<TokenId> prompt_;
};

}  // namespace

std::unique_ptr<ArmFault> other_model(const FaultSpec& spec) { return std::make_unique<OtherModel>(spec); }
std::unique_ptr<ArmFault> other_positions(const FaultSpec& spec) { return std::make_unique<OtherPositions>(spec); }
std::unique_ptr<ArmFault> other_tokens(const FaultSpec& spec) { return std::make_unique<OtherTokens>(spec); }

}  // namespace kvdiv
