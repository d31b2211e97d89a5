#include "kvdiv/decode/cache_noise.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kvdiv/base/error.h"
#include "kvdiv/base/random.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/numerics/half.h"

namespace kvdiv {
namespace {

/// 53 random bits in [0, 1).
double uniform(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>(((static_cast<std::uint64_t>(high) << 32) | low) >> 11) * 0x1p-53;
}

/// Two standard normal numbers a Philox block (Box and Muller, 1958): elements 2i and 2i + 1 of a position.
class Gaussian {
 public:
  Gaussian(const CacheNoise& noise, CachePart part, std::int64_t layer)
      : key_{static_cast<std::uint32_t>(noise.seed), static_cast<std::uint32_t>(noise.prompt)},
        part_(part == CachePart::keys ? 0 : 1),
        layer_(static_cast<std::uint32_t>(layer)) {}

  double operator()(std::int64_t position, std::int64_t element) {
    if (position != position_ || element / 2 != block_) draw(position, element / 2);
    return pair_[static_cast<std::size_t>(element % 2)];
  }

 private:
  void draw(std::int64_t position, std::int64_t block) {
    position_ = position, block_ = block;
    const auto w =
        philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(position), layer_, part_}, key_);
    const double radius = std::sqrt(-2.0 * std::log(uniform(w[0], w[1]) + 0x1p-53));  // the logarithm's argument is > 0
    const double angle = 2.0 * std::numbers::pi * uniform(w[2], w[3]);
    pair_ = {radius * std::cos(angle), radius * std::sin(angle)};
  }

  std::array<std::uint32_t, 2> key_;
  std::uint32_t part_, layer_;
  std::int64_t position_ = -1, block_ = -1;
  std::array<double, 2> pair_{};
};

void add_gaussian(const CacheNoise& noise, CachePart part, std::int64_t layer, std::int64_t first_position,
                  const at::Tensor& from_BGTD, double* to) {
  Gaussian gaussian(noise, part, layer);
  const auto G = from_BGTD.size(1), T = from_BGTD.size(2), D = from_BGTD.size(3);
  const auto* from = from_BGTD.const_data_ptr<double>();
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t element = 0; element < G * D; ++element) {
      const std::int64_t i = (element / D * T + t) * D + element % D;
      to[i] = from[i] * (1.0 + noise.size * gaussian(first_position + t, element));
    }
}

std::span<const double> elements(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

/// Keys or values [1,G,T,D] with noise, in their own dtype; T positions from `first_position` on.
at::Tensor noisy(const CacheNoise& noise, CachePart part, std::int64_t layer, std::int64_t first_position,
                 const at::Tensor& clean_BGTD, RelativeChange& change) {
  const at::Tensor before = clean_BGTD.to(at::kCPU, at::kDouble).contiguous();
  at::Tensor exact = at::empty_like(before);
  auto* to = exact.mutable_data_ptr<double>();
  if (noise.kind == NoiseKind::gaussian) {
    add_gaussian(noise, part, layer, first_position, before, to);
  } else {
    std::transform(before.const_data_ptr<double>(), before.const_data_ptr<double>() + before.numel(), to,
                   [&](double x) { return round_to_mantissa_bits(x, noise.mantissa_bits); });
  }
  at::Tensor stored = exact.to(clean_BGTD.scalar_type());
  change.add(part, layer, elements(before), elements(stored.to(at::kDouble)));
  return stored.to(clean_BGTD.device());
}

}  // namespace

RelativeChange::RelativeChange(std::int64_t n_layers)
    : keys_(static_cast<std::size_t>(n_layers)), values_(static_cast<std::size_t>(n_layers)) {}

void RelativeChange::add(CachePart part, std::int64_t layer, std::span<const double> before,
                         std::span<const double> after, double floor) {
  Sums& sums = (part == CachePart::keys ? keys_ : values_).at(static_cast<std::size_t>(layer));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double delta = after[i] - before[i], against = std::max(std::fabs(before[i]), floor);
    if (!std::isfinite(delta)) {
      ++n_nonfinite_;
      continue;
    }
    sums.change += delta * delta;
    sums.norm += before[i] * before[i];
    if (against == 0.0) continue;
    sums.relative += delta / against * (delta / against);
    ++sums.n;
  }
}

std::optional<double> RelativeChange::by_norm(bool keys, bool values) const {
  double sum = 0.0;
  std::int64_t n = 0;
  for (const auto& [wanted, layers] : {std::pair(keys, &keys_), std::pair(values, &values_)})
    for (const Sums& sums : *layers)
      if (wanted && sums.norm > 0.0) sum += sums.change / sums.norm, ++n;
  return n > 0 ? std::optional(std::sqrt(sum / static_cast<double>(n))) : std::nullopt;
}

std::optional<double> RelativeChange::by_element(bool keys, bool values) const {
  double sum = 0.0;
  std::int64_t n = 0;
  for (const auto& [wanted, layers] : {std::pair(keys, &keys_), std::pair(values, &values_)})
    for (const Sums& sums : *layers)
      if (wanted) sum += sums.relative, n += sums.n;
  return n > 0 ? std::optional(std::sqrt(sum / static_cast<double>(n))) : std::nullopt;
}

KvCache walk_with_noise(const Arms& arms, const Trajectory& t, const CacheNoise& noise, RelativeChange& change,
                        const OnStep& on_step) {
  const c10::InferenceMode inference;
  KvCache cache = t.cache_before(1);
  for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer) {
    const at::Tensor keys = cache.keys(layer), values = cache.values(layer);
    if (noise.keys) keys.copy_(noisy(noise, CachePart::keys, layer, 0, keys, change));
    if (noise.values) values.copy_(noisy(noise, CachePart::values, layer, 0, values, change));
  }
  EditTap tap(
      [&](Site site, std::int64_t) {
        return (site == Site::key_rotary && noise.keys) || (site == Site::value && noise.values);
      },
      [&](Site site, std::int64_t layer, const at::Tensor& x) {
        const CachePart part = site == Site::value ? CachePart::values : CachePart::keys;
        return noisy(noise, part, layer, cache.length(), x, change);
      });
  for (std::int64_t step = 1; step < t.n_steps(); ++step) {
    const std::vector<double> logits = host_logits(arms.on(t.newest(step), cache, &tap));
    if (!std::all_of(logits.begin(), logits.end(), [](double v) { return std::isfinite(v); }))
      fail(ErrorKind::invalid_measurement,
           "noise on the cache: a logit is not finite at step {}; use --dtype float32, or smaller sizes", step);
    on_step(step, logits);
  }
  return cache;
}

}  // namespace kvdiv
