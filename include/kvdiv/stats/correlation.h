#pragma once
// Correlations with their tests. x[i], y[i] (and the controls' i-th values) belong together: spans of different lengths
// are an internal error; a row with a value that is not finite is left out whole, and n counts the rest. Input that
// leaves too few rows, or a variable without spread, gives null and a reason, no NaN, no throw.
#include <span>
#include <vector>

#include "kvdiv/stats/hypothesis.h"

namespace kvdiv {

/// Pearson's r; variant "t". effect: r, clamped to [−1, 1]. With k = 0 controls:
/// - statistic t = r √(df/(1 − r²)), df = n − 2 − k; p two-sided from Student's t. For |r| = 1 p is 0 and t, which is
///   infinite, null with a reason. Within 1e-15 of a perfect correlation rounding decides how small p gets.
/// - ci: 95 %, tanh(artanh r ± z₀.₉₇₅/√(n − 3 − k)) (Fisher, 1921); [r, r] for |r| = 1.
/// - min_detectable_effect: the |r| with artanh r = (z₀.₉₇₅ + z₀.₈)/√(n − 3 − k).
/// Null with a reason: everything if df < 1 or a variable is constant; ci and min_detectable_effect if df = 1.
TestResult pearson(std::span<const double> x, std::span<const double> y);

/// Spearman's rank correlation: all of the above for the ranks (variant "t, average ranks"). p by the t approximation,
/// as in scipy.stats.spearmanr, and the interval of Fisher's z are approximations here: rough below about ten pairs,
/// and the interval is somewhat too narrow for strong correlations.
TestResult spearman(std::span<const double> x, std::span<const double> y);

/// Pearson's r of what is left of x and y after least squares on the controls with an intercept; variant "t, k controls
/// removed". No controls: pearson. A variable counts as explained by the controls if its residuals are below 1e-10 of
/// its deviations: everything is null then, with a reason, as it is for controls that are constant or depend on each
/// other.
TestResult partial_correlation(std::span<const double> x, std::span<const double> y,
                               std::span<const std::span<const double>> controls);

/// The same with one control.
TestResult partial_correlation(std::span<const double> x, std::span<const double> y, std::span<const double> z);

/// Ranks from 1; equal values get the mean of the ranks that they take up. A NaN has no rank (internal error).
std::vector<double> average_ranks(std::span<const double> values);

}  // namespace kvdiv
