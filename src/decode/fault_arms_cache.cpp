// Faulty arms whose cache holds, or gives back, something else than what was written.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "fault_arms.h"
#include "kvdiv/base/random.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/numerics/half.h"

namespace kvdiv {
namespace {

/// Standard normals by place: (layer, keys or values, position, element of the position).
double normal_at(std::uint64_t seed, std::int64_t layer, bool values, std::int64_t position, std::int64_t element) {
  const std::array<std::uint32_t, 4> place{static_cast<std::uint32_t>(element / 4),
                                           static_cast<std::uint32_t>(position),
                                           static_cast<std::uint32_t>(2 * layer + (values ? 1 : 0)), 0x666c6177u};
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  return standard_normals(philox4x32(place, key))[static_cast<std::size_t>(element % 4)];
}

class OtherCache final : public ArmFault {
 public:
  explicit OtherCache(const FaultSpec& spec) : spec_(spec) {}

  ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) override {
    const std::int64_t before = cache->length();
    const bool is_step = before > 0 && tokens.size() == 1;
    if (!is_step) prompt_end_ = before + std::ssize(tokens);
    at::Tensor logits_V;
    if (spec_.fault == Fault::kv_heads_mapped_wrongly && is_step) {
      EditTap edit([this](Site site,
                          std::int64_t layer) { return (site == Site::keys || site == Site::values) && is_in(layer); },
                   [this](Site, std::int64_t, const at::Tensor& x_BGSD) { return other_heads(x_BGSD); });
      TapChain chain{&edit, tap};
      logits_V = decoder.forward(tokens, cache, chain.get());
    } else {
      logits_V = decoder.forward(tokens, cache, tap);
    }
    const c10::InferenceMode inference;
    for (std::int64_t layer = 0; layer < decoder.config().sizes.n_layers; ++layer)
      if (is_in(layer)) spoil(*cache, layer, before);
    return {logits_V, std::ssize(tokens)};
  }

 private:
  bool is_in(std::int64_t layer) const { return !spec_.layer || *spec_.layer == layer; }

  at::Tensor other_heads(const at::Tensor& x_BGSD) const {
    const std::int64_t G = x_BGSD.size(1);
    const at::Tensor index =
        at::remainder(at::arange(spec_.shift, spec_.shift + G, x_BGSD.options().dtype(at::kLong)), G);
    return at::index_select(x_BGSD, 1, index);
  }

  /// What the call wrote, positions `before` … length − 1, becomes what the fault stores.
  void spoil(const KvCache& cache, std::int64_t layer, std::int64_t before) const {
    const at::Tensor keys = cache.keys(layer), values = cache.values(layer);
    if (spec_.fault == Fault::stale_slot) {
      const std::int64_t slot = spec_.slot < 0 ? prompt_end_ + spec_.slot : spec_.slot;
      if (slot < before || slot >= cache.length() || slot < spec_.distance) return;
      for (const at::Tensor& x_BGSD : {keys, values})
        x_BGSD.narrow(2, slot, 1).copy_(x_BGSD.narrow(2, slot - spec_.distance, 1));
    }
    if (spec_.fault == Fault::cache_lower_dtype || spec_.fault == Fault::noise) {
      const std::int64_t T = cache.length() - before;
      spoil_numbers(keys.narrow(2, before, T), layer, false, before);
      spoil_numbers(values.narrow(2, before, T), layer, true, before);
    }
  }

  void spoil_numbers(const at::Tensor& x_BGTD, std::int64_t layer, bool is_value, std::int64_t first) const {
    const at::Tensor from = x_BGTD.to(at::kCPU, at::kDouble).contiguous(), to = at::empty_like(from);
    const auto T = from.size(2), D = from.size(3);
    const double* x = from.const_data_ptr<double>();
    double* out = to.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < from.numel(); ++i) {
      const std::int64_t element = i / (T * D) * D + i % D, position = first + i / D % T;
      out[i] = spec_.fault == Fault::noise
                   ? x[i] * (1.0 + spec_.size * normal_at(spec_.seed, layer, is_value, position, element))
                   : round_to_mantissa_bits(x[i], spec_.mantissa_bits);
    }
    x_BGTD.copy_(to);
  }

  FaultSpec spec_;
  std::int64_t prompt_end_ = 0;
};

}  // namespace

std::unique_ptr<ArmFault> other_cache(const FaultSpec& spec) { return std::make_unique<OtherCache>(spec); }

}  // namespace kvdiv
