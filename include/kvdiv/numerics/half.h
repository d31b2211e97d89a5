#pragma once
// IEEE 754 binary16 ("FP16") in plain C++: values stay doubles or floats that binary16 can represent. All roundings are
// to nearest, ties to even, and are computed by integer and FP64 operations only: the same bits on every CPU, with or
// without hardware halves. No torch header, so that numerical experiments without a model need no tensor.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvdiv {

inline constexpr double kLargestHalf = 65504.0;  ///< (2 − 2⁻¹⁰)·2¹⁵
inline constexpr double kSmallestNormalHalf = 0x1p-14;
inline constexpr double kSmallestHalf = 0x1p-24;  ///< the smallest subnormal, and the spacing of all subnormals

/// The half nearest to x. |x| ≥ 65520 (half way to the next power of two) is ±inf, below 2⁻²⁵ it is ±0, a NaN is kept
/// with its payload. One rounding from double: going through float would round twice and be wrong next to a tie, for
/// about one double in 2¹⁴. (Inline: a rounding an addition is what software FP16 costs; about 1 to 3 ns.)
inline double round_to_half(double x) {
  constexpr int kDropped = 52 - 10;  // explicit mantissa bits of a double minus those of a half
  constexpr std::uint64_t kTail = (std::uint64_t{1} << kDropped) - 1;
  const double size = std::fabs(x);
  if (!(size < 65520.0)) return std::isnan(x) ? x : std::copysign(std::numeric_limits<double>::infinity(), x);
  // Subnormals lie 2⁻²⁴ apart, as the doubles above 2²⁸ do: the addition rounds. −0 and signs of results of 0 stay.
  if (size < kSmallestNormalHalf) return std::copysign((size + 0x1p28) - 0x1p28, x);
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // Half an ulp minus one, plus one if the kept mantissa is odd; a carry runs into the exponent, as it should.
  return std::bit_cast<double>((bits + (kTail >> 1) + ((bits >> kDropped) & 1)) & ~kTail);
}

/// The same for a float (exact in double, so there is one rounding here too).
inline float round_to_half(float x) { return static_cast<float>(round_to_half(static_cast<double>(x))); }

/// Distance between neighbouring halves at the size of x: 2^(max(e, −14) − 10) for 2^e ≤ |x| < 2^(e+1). At ±0 the
/// subnormal spacing 2⁻²⁴; beyond the largest half that of its binade, 32; NaN for a NaN or an infinity.
double ulp_of_half(double x);

/// x to the nearest number with `bits` explicit mantissa bits, ties to even, whatever its exponent: 10 is binary16's
/// mantissa and 7 bfloat16's, without their subnormals and overflow. 1 ≤ bits ≤ 52 (else an internal error). Zeros,
/// infinities and NaNs are kept; only what rounds up beyond the largest double becomes infinite.
double round_to_mantissa_bits(double x, int bits);

}  // namespace kvdiv
