#pragma once
// Dot products of FP16 numbers in named orders of addition, accumulated in FP16 or FP32: what the order and the
// accumulator of a kernel do to a result, apart from what its operands and its stored result lose. No torch header.
#include <cstdint>
#include <span>

#include "kvdiv/numerics/reduction.h"

namespace kvdiv {

inline constexpr std::int64_t kSumBlock = 32;  ///< terms of a block
inline constexpr std::int64_t kSumParts = 4;   ///< parts of split_k

/// An order with the number that these experiments give it.
constexpr ReductionSpec half_sum_spec(SumOrder order, Accumulator accumulator) {
  return {order, order == SumOrder::blocked ? kSumBlock : order == SumOrder::split_k ? kSumParts : 0, accumulator};
}

/// Σ aₖbₖ of two spans of FP16 values of one length, as numerics/reduction.h defines it for half_sum_spec. Products of
/// two halves have 22 bits: they are exact as they enter an FP32 accumulator, and rounded as they enter an FP16 one.
double ordered_dot(std::span<const double> a, std::span<const double> b, SumOrder order, Accumulator accumulator);

/// E[ulp(X)²]/12 for X ~ N(0, σ²), σ > 0: the variance of one rounding, its error being uniform over ±ulp/2. Formula:
/// Σ over binades e of P(2^e ≤ |X| < 2^(e+1)) · 4^(max(e, e_min) − m)/12 with (m, e_min) = (10, −14) or (23, −126).
/// Divided by σ² and away from the subnormals it has the period 4 in σ² and moves by ±0.3 % only.
double rounding_variance(double sigma, Accumulator accumulator);

/// Variance of the error of ordered_dot by the random-walk model: n independent terms of mean 0 and the given variance;
/// a partial sum of k terms is taken for N(0, k·term_variance); roundings are independent and rounding_variance each,
/// one for every addition of the order:
///   sequential  Σₖ v(k), k = 1 … n                (v(k): rounding_variance of a partial sum of k terms)
///   pairwise    n·v(1) + Σ over the nodes of the tree v(terms below)
///   blocked, split-k: that of every part, plus v(terms so far) for every part but the first
///   kahan       n·v(1) + v(n): the terms as they enter, and the last addition; what lies between is compensated
/// In FP32 a bare product is exact: v(1) is left out but for Kahan. Sums of a few 22-bit products are often exact in
/// FP32 as well, so there the model is up to 20 % too high below some hundred terms. Sums of two neighbours of one size
/// drop a single bit, whose rounding has variance ulp²/8, not ulp²/12: pairwise and Kahan's sums in FP16 measure 2 to
/// 14 % above the model. Sequential ones meet it within 6 %. Growth: relative error ~ √n for sequential sums, √log n
/// for pairwise ones, none for Kahan's. (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, sections 2.8,
/// 4.2 and 4.3.)
double sum_rounding_variance(SumOrder order, std::size_t n, double term_variance, Accumulator accumulator);

/// Where in the stream of normals a fill starts: fills with different places share no number, and a fill's numbers do
/// not depend on which others are made.
struct NormalPlace {
  std::uint32_t purpose = 0, index = 0, trial = 0;
};

/// Standard normal FP32 numbers, the operands of experiments without a model: Box & Muller (1958) in FP64 on the words
/// of Philox 4x32-10 under a fixed key, rounded to FP32. 32-bit uniforms: no number is beyond ±6.7.
void fill_standard_normals(std::span<float> out, NormalPlace place);

}  // namespace kvdiv
