#pragma once
// Part `propagation` of experiment 3: how the FP16 error of a residual stream grows over N sequential attention blocks.
// Needs no model: random projections, so that what grows is arithmetic and not a property of one checkpoint.
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/fields.h"

namespace kvdiv {

struct PropagationParams {
  std::vector<std::int64_t> steps{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  std::int64_t length = 32;
  std::int64_t dim = 64;
  std::int64_t trials = 10;
};

template <class V>
void describe_fields(V& v, PropagationParams& p) {
  v.field("steps", p.steps, "numbers of sequential attention + residual steps");
  v.field("length", p.length, "positions of the state");
  v.field("dim", p.dim, "width of the state, one attention head");
  v.field("trials", p.trials, "random states with random projections");
}

/// How a step is computed. The FP16 arms round the result of every operation to FP16 (norm, projections, scores, scale,
/// softmax, weighted sum, residual), with the accumulator of their dot products as named.
enum class StepArithmetic { float64, float16, float16_accumulate };
template <>
struct EnumNames<StepArithmetic> {
  static constexpr std::string_view what = "arithmetic of a step";
  static constexpr std::array<std::pair<StepArithmetic, std::string_view>, 3> values{
      {{StepArithmetic::float64, "float64"},
       {StepArithmetic::float16, "float16"},
       {StepArithmetic::float16_accumulate, "float16-accumulate"}}};
};

/// One arm of one trial, against float64.
struct PropagatedTrial {
  std::vector<double> rel_err;  ///< [steps] ‖x − x₆₄‖/‖x₆₄‖ after each number of steps, all positions together
  std::vector<double> error_rms;  ///< [steps] RMS of x − x₆₄ over all numbers of the state
  std::vector<double> state_rms;  ///< [steps] RMS of x₆₄
};

/// [arms] Runs each arithmetic and float64 from the same start through the same projections (all FP16 numbers, so that
/// every arm holds them exactly and only arithmetic differs). float64 against itself is exactly 0. `steps` must ascend.
std::vector<PropagatedTrial> propagate(const PropagationParams& params, const std::vector<StepArithmetic>& arms,
                                       std::uint32_t trial);

/// One step: x ← x + softmax_causal(q kᵀ/√dim) v W, with q, k, v = h W_q, h W_k, h W_v and h = x/√(mean x² + 1e-6) by
/// row. x is [length, dim] and starts as N(0, 1); the four projections are [dim, dim], N(0, 1/dim), drawn anew for each
/// step as a stack of layers has them. A branch has an RMS of 1 or less, and the state's RMS grows by a factor of about
/// 7 over 64 steps. Consequence: roundings of the residual grow with the state, so the absolute error grows faster than
/// a random walk of equal steps (√N) and the relative error more slowly.
/// Products in FP16 are exact and each addition is rounded once, in FP32 or FP16, sequentially; norm and softmax are
/// computed in FP64 and rounded once (the FP32 of real kernels would differ in one rounding of some thousands).
///
/// Returns, all rows flat:
///   propagation  [{n_steps, trials, state_rms, rel_err_pct, rel_err_ci_low_pct, rel_err_ci_high_pct, and the
///                 last three with float16_accumulate_ before them}]: medians over trials; 95 % percentile bootstrap
///                 over trials
///   growth       [{arithmetic, error, from_steps, to_steps, exponent, ci_low, ci_high, trials}]: the slope of log
///                 error on log N by least squares, of the "relative" and the "absolute" error (RMS), over all steps,
///                 and over the lower and the upper half of the list. Absolute, 1: every step adds the same error in
///                 the same direction (linear); 0.5: independent errors of one size (random walk).
/// The slope of the mean log error is the mean of the trials' slopes, so its interval is that of a mean over trials
/// (2000 resamples). Throws Error{usage} unless there are two or more different steps ≥ 1, length and dim are ≥ 1 and
/// trials ≥ 2.
Json run_propagation(const PropagationParams& params);

}  // namespace kvdiv
