#pragma once
// Part `dot` of experiment 3: where the FP16 error of a dot product comes from. Three causes, one column each, never
// mixed: rounding the operands, rounding the result, and accumulating in FP16 or FP32 in a given order. Needs no model.
#include <cstdint>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

struct DotParams {
  std::vector<std::int64_t> lengths{16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  std::vector<std::int64_t> head_dims{64, 128, 256};
  std::int64_t trials = 1200;
  std::int64_t weighted_trials = 8;
};

template <class V>
void describe_fields(V& v, DotParams& p) {
  v.field("lengths", p.lengths, "numbers of terms: of q·k, and of keys in the weighted sum of V");
  v.field("head-dims", p.head_dims, "outputs of the weighted sum of V; empty leaves it out");
  v.field("trials", p.trials, "dot products per length");
  v.field("weighted-trials", p.weighted_trials, "weighted sums (head_dim outputs each) per length and head_dim");
}

/// Errors in percent, from standard normal FP32 operands (the same in every run, on every machine up to its libm).
///
/// Relative error = RMS(error)/RMS(reference) over all trials (and the head_dim outputs of a weighted sum), × 100. Not
/// the mean of |error/reference|: the reference is nearly normal around 0, so that quotient has no mean (as a Cauchy
/// variable has none), and averages of it depend on the one smallest reference in the sample.
///
/// Columns: `operands` rounds both operands to FP16, the rest is FP64; `result` rounds only the FP64 result to FP16;
/// `operands_and_stored` does both (what exact accumulation would give); these three are held against FP64 on the
/// unrounded operands. ORDER_ACCUMULATOR ("sequential_float16", …, "kahan_float32"; see numerics/half_sums.h) is the
/// accumulation only: against FP64 on the same FP16 operands, before the result is stored.
/// The FP64 references are good to about 1e-13 %; the smallest column, FP32 Kahan, is near 4e-6 %.
///
/// Weighted sum over S = length keys: outputs Σᵢ wᵢ vᵢⱼ with w = softmax of q·kᵢ/√head_dim, q and k normal, in FP64.
/// (Given q these scores are N(0, |q|²/head_dim), independent over the keys, and are drawn as such.) Weights and V are
/// rounded to FP16. A weight is about 1/S: from S ≈ 1,000 on many are FP16 subnormals (below 6.1e-5) with a larger
/// relative error, and the rounded ones do not sum to 1. Both belong to `operands`, and neither shows up to S = 4096:
/// the heavy weights carry the sum.
///
/// Closed forms (`theory`), r(σ)² = rounding_variance(σ)/σ², r ≈ 0.0208 % for FP16 at any σ, for independent roundings:
///   operands √2·r(1);  result r(√n);  operands_and_stored √(2r(1)² + r(√n)²) ≈ √3·r = 0.036 %: flat in n
///   accumulation √(sum_rounding_variance(order, n)/n); of a weighted sum with the term variance mean(Σw²)/n.
///
/// Returns, all rows flat:
///   dot                   [{length, trials, COLUMN_pct…, each column with a closed form also COLUMN_theory_pct}]
///   dot_columns           [{length, trials, column, error_pct, ci_low_pct, ci_high_pct, std_pct, theory_pct}]
///   weighted_sum          [{length, head_dim, trials, COLUMN_pct…, …}], weighted_sum_columns likewise
///   dot_over_lengths      [{column, mean_pct, std_pct, max_over_min, growth_exponent}]: is a column flat? std over
///                         the lengths (two or more), exponent = slope of log error on log length (0.5: random walk)
///   closed_form           {one_rounding_pct, operands_pct, operands_and_stored_pct} at σ = 1
/// Where a closed form is missing (operands and result of weighted sums) the key is missing too. ci: 95 % percentile
/// bootstrap over trials (500 resamples), std: that of the resamples, the standard error. With eight weighted trials
/// the interval is 10 to 20 % too narrow. Throws Error{usage} unless lengths and head_dims are ≥ 1 and both numbers of
/// trials ≥ 2.
Json run_dot(const DotParams& params);

}  // namespace kvdiv
