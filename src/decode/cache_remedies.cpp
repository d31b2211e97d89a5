#include "kvdiv/decode/cache_remedies.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"

namespace kvdiv {
namespace {

class Float32Cache final : public CacheRemedy {
 public:
  Float32Cache(const ModelConfig& config, std::int64_t capacity)
      : n_layers_(config.sizes.n_layers), capacity_(capacity) {}

  void after_call(const Arms& arms, std::span<const TokenId>, std::int64_t n_new, KvCache& cache) override {
    if (!wide_) wide_.emplace(arms.config(), DType::float32, capacity_, arms.decoder().device());
    const std::int64_t first = cache.length() - n_new;
    for (std::int64_t layer = 0; layer < n_layers_; ++layer)
      wide_->append(layer, cache.keys(layer).narrow(2, first, n_new).to(at::kFloat),
                    cache.values(layer).narrow(2, first, n_new).to(at::kFloat), std::nullopt);
    wide_->advance(n_new);
    for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
      cache.keys(layer).copy_(wide_->keys(layer));
      cache.values(layer).copy_(wide_->values(layer));
    }
  }

 private:
  std::int64_t n_layers_, capacity_;
  std::optional<KvCache> wide_;
};

class RefreshedCache final : public CacheRemedy {
 public:
  RefreshedCache(std::int64_t interval, double weight) : interval_(interval), weight_(weight) {}

  void after_call(const Arms& arms, std::span<const TokenId> stored, std::int64_t n_new, KvCache& cache) override {
    const bool is_prefill = n_new == std::ssize(stored);
    if (is_prefill || ++n_since_ < interval_) return;
    n_since_ = 0;
    KvCache fresh = arms.decoder().make_cache(std::ssize(stored));
    arms.on(stored, fresh);
    for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer) {
      mix(cache.keys(layer), fresh.keys(layer));
      mix(cache.values(layer), fresh.values(layer));
    }
  }

 private:
  void mix(const at::Tensor& stored, const at::Tensor& fresh) const {
    if (weight_ == 0.0) return;  // the ends are exact whatever the sign of a zero
    if (weight_ == 1.0) {
      stored.copy_(fresh);
      return;
    }
    stored.copy_(stored.to(at::kFloat).mul_(1.0 - weight_).add_(fresh.to(at::kFloat).mul_(weight_)));
  }

  std::int64_t interval_;
  double weight_;
  std::int64_t n_since_ = 0;
};

class QuantizedCache final : public CacheRemedy {
 public:
  explicit QuantizedCache(int bits) : bits_(bits) {}

  void after_call(const Arms& arms, std::span<const TokenId>, std::int64_t n_new, KvCache& cache) override {
    const std::int64_t first = cache.length() - n_new;
    for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer)
      for (const at::Tensor& stored : {cache.keys(layer), cache.values(layer)}) {
        const at::Tensor written = stored.narrow(2, first, n_new);
        written.copy_(quantize_dequantize(written, bits_));
      }
  }

 private:
  int bits_;
};

/// The smallest FP16 that is not less than x ≥ 0; beyond the largest it is infinite.
double half_at_least(double x) {
  const double nearest = round_to_half(x);
  return nearest >= x ? nearest : round_to_half(nearest + ulp_of_half(nearest));
}

double largest_integer(int bits) { return static_cast<double>((1 << (bits - 1)) - 1); }

void quantize_group(const double* from, double* to, std::int64_t n, double largest) {
  double peak = 0.0;
  for (std::int64_t i = 0; i < n; ++i) peak = std::max(peak, std::fabs(from[i]));
  const double scale = half_at_least(peak / largest);
  for (std::int64_t i = 0; i < n; ++i) to[i] = scale == 0.0 ? from[i] : scale * std::nearbyint(from[i] / scale);
}

}  // namespace

std::unique_ptr<CacheRemedy> float32_cache(const ModelConfig& config, std::int64_t capacity) {
  return std::make_unique<Float32Cache>(config, capacity);
}

std::unique_ptr<CacheRemedy> refreshed_cache(std::int64_t interval, double weight) {
  if (interval < 1 || !(weight >= 0.0 && weight <= 1.0))
    fail(ErrorKind::internal, "refresh every {} tokens with weight {}", interval, weight);
  return std::make_unique<RefreshedCache>(interval, weight);
}

std::unique_ptr<CacheRemedy> quantized_cache(int bits) { return std::make_unique<QuantizedCache>(bits); }

at::Tensor quantize_dequantize(const at::Tensor& x, int bits, std::int64_t group) {
  if (bits < 2 || bits > 8 || group < 1) fail(ErrorKind::internal, "quantization to {} bits by {}", bits, group);
  const at::Tensor exact = x.to(at::kCPU, at::kDouble).contiguous();
  at::Tensor out = at::empty_like(exact);
  const std::int64_t D = x.size(-1);
  const auto* const from = exact.const_data_ptr<double>();
  auto* const to = out.mutable_data_ptr<double>();
  for (std::int64_t row = 0; row < exact.numel(); row += D)
    for (std::int64_t d = 0; d < D; d += group)
      quantize_group(from + row + d, to + row + d, std::min(group, D - d), largest_integer(bits));
  return out.to(x.device(), x.scalar_type());
}

std::uint64_t quantized_cache_bytes(const ModelConfig& config, int bits, std::int64_t n_positions) {
  const auto& s = config.sizes;
  const std::int64_t D = s.head_dim, n_groups = (D + kQuantizationGroup - 1) / kQuantizationGroup;
  const std::int64_t row = (D * bits + 7) / 8 + 2 * n_groups;
  return static_cast<std::uint64_t>(2 * s.n_layers * s.n_kv_heads * n_positions * row);
}

}  // namespace kvdiv
