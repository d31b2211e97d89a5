#pragma once
// `kvdiv noise`: how much error in the cache a text stands. Noise of a given relative size is put on the keys and
// values that ON stores, ON is walked along its own tokens, and the flips are counted: flip rate against size, and the
// size at which it crosses 1 %, 10 % and 50 %, beside the size of FP16's own error.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/decode/cache_noise.h"
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

enum class NoiseWhat { k, v, kv };
template <>
struct EnumNames<NoiseWhat> {
  static constexpr std::string_view what = "noisy quantity";
  static constexpr std::array<std::pair<NoiseWhat, std::string_view>, 3> values{
      {{NoiseWhat::k, "k"}, {NoiseWhat::v, "v"}, {NoiseWhat::kv, "kv"}}};
};

struct NoiseParams : ArithmeticParams, SelectionParams {
  /// Float32, unlike other experiments: the arithmetic's own rounding is to be far below the noise.
  NoiseParams() { dtype = {DType::float32}; }
  std::vector<NoiseWhat> what{NoiseWhat::k, NoiseWhat::v, NoiseWhat::kv};
  std::vector<NoiseKind> kind{NoiseKind::gaussian, NoiseKind::mantissa};
  std::vector<double> size{0x1p-11, 0x1p-9, 0x1p-7, 0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1.0, 2.0};
  std::vector<std::int64_t> mantissa_bits{10, 8, 7, 6, 5, 4, 3, 2, 1};
  std::int64_t noise_seeds = 2;
};

template <class V>
void describe_fields(V& v, NoiseParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<SelectionParams&>(p));
  v.field("what", p.what, "what gets noise: the keys, the values, or both");
  v.field("kind", p.kind, "gaussian: x·(1 + size·g) with g standard normal; mantissa: x rounded to fewer bits");
  v.field("size", p.size, "relative sizes of gaussian noise; float32 as dtype keeps its own rounding far below them");
  v.field("mantissa-bits", p.mantissa_bits, "explicit mantissa bits that are left; 10 is FP16's mantissa, 7 BF16's");
  v.field("noise-seeds", p.noise_seeds, "draws of gaussian noise per prompt and size, seeds 0…N−1");
}

/// One text on one noisy cache, against the clean one, steps 1 … n − 1.
struct NoiseRecord {
  static constexpr std::string_view type = "noise";
  std::string pair_id;
  std::string what;                           ///< "k", "v", "kv"
  std::string kind;                           ///< "gaussian", "mantissa"
  std::optional<double> size;                 ///< of gaussian
  std::optional<std::int64_t> mantissa_bits;  ///< of mantissa
  std::optional<std::int64_t> noise_seed;     ///< of gaussian; rounding draws nothing
  std::int64_t n_steps = 0;
  std::int64_t flips = 0;                        ///< steps whose largest logit is another token's, without tie_flips
  std::int64_t tie_flips = 0;                    ///< such steps where the largest logit of a side occurs more than once
  std::optional<std::int64_t> first_flip;        ///< first step of `flips`; null: none
  double kl_mean_nats = 0.0, kl_max_nats = 0.0;  ///< KL(clean‖noisy) of the steps
  double max_abs_dlogit = 0.0;
  std::optional<double> stored_size;  ///< change as stored: √ of the mean over layers, K and V apart, of ‖Δ‖²/‖x‖²
  std::optional<double> stored_rms;  ///< √ of the mean over elements of (Δ/x)²; null: nothing but zeros was stored
};

template <class V>
void describe_fields(V& v, NoiseRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("what", r.what);
  v.field("kind", r.kind);
  v.field("size", r.size);
  v.field("mantissa_bits", r.mantissa_bits);
  v.field("noise_seed", r.noise_seed);
  v.field("n_steps", r.n_steps);
  v.field("flips", r.flips);
  v.field("tie_flips", r.tie_flips);
  v.field("first_flip", r.first_flip);
  v.field("kl_mean_nats", r.kl_mean_nats);
  v.field("kl_max_nats", r.kl_max_nats);
  v.field("max_abs_dlogit", r.max_abs_dlogit);
  v.field("stored_size", r.stored_size);
  v.field("stored_rms", r.stored_rms);
}

void validate(const NoiseParams& params);

ExperimentResult run_noise(Context& context, const NoiseParams& params);

}  // namespace kvdiv
