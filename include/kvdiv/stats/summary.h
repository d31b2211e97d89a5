#pragma once
// A column of numbers in sixteen fields. Intervals resample prompts: the steps of one prompt are not independent.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

/// Every number is in the unit of the values. Null is "not defined for these values", never 0 and never NaN.
struct Stat {
  std::int64_t n = 0;            ///< finite values: what all other fields but n_nonfinite are computed from
  std::int64_t n_nonfinite = 0;  ///< NaN and infinite values, left out of the rest
  std::optional<double> mean;    ///< null if n = 0, like all below
  std::optional<double> std;     ///< sample standard deviation, n − 1 in the denominator; null if n < 2
  std::optional<double> min, p1, p5, p25, median, p75, p95, p99, max;  ///< see quantile_sorted
  std::optional<double> ci_low, ci_high;  ///< 95 % interval of the mean; null if there are fewer than two prompts
  std::string ci_method = "none: no values";
};

template <class V>
void describe_fields(V& v, Stat& s) {
  v.field("n", s.n);
  v.field("n_nonfinite", s.n_nonfinite);
  v.field("mean", s.mean);
  v.field("std", s.std);
  v.field("min", s.min);
  v.field("p1", s.p1);
  v.field("p5", s.p5);
  v.field("p25", s.p25);
  v.field("median", s.median);
  v.field("p75", s.p75);
  v.field("p95", s.p95);
  v.field("p99", s.p99);
  v.field("max", s.max);
  v.field("ci_low", s.ci_low);
  v.field("ci_high", s.ci_high);
  v.field("ci_method", s.ci_method);
}

struct StatOptions {
  int n_resamples = 2000;                      ///< 0: no intervals (for reports on the way, which are rewritten)
  std::uint64_t seed = 0x6b76646976626f6full;  ///< fixed, so that the same values always give the same interval
};

struct Interval {
  double low = 0.0, high = 0.0;
};

/// 0 … n − 1: each of n values being a cluster of its own.
std::vector<std::int32_t> own_clusters(std::size_t n);

/// Summarises values; clusters[i] is the prompt of values[i] (any numbers). Sizes must be equal (internal error).
/// Mean and standard deviation are two-pass with compensated sums (no Σx² − (Σx)²/n: Chan, Golub & LeVeque, 1983).
Stat summarize(std::span<const double> values, std::span<const std::int32_t> clusters, const StatOptions& options = {});

/// The same, each value being a prompt of its own.
Stat summarize(std::span<const double> values, const StatOptions& options = {});

/// The quantile q in [0, 1] of ascending finite values, by linear interpolation between order statistics at
/// (n − 1) q (Hyndman & Fan, 1996, type 7; the default of numpy and R). The span must not be empty (internal error).
double quantile_sorted(std::span<const double> sorted, double q);

/// 95 % percentile bootstrap interval of the mean (Efron & Tibshirani, 1993, chapter 13), resampling whole prompts with
/// replacement: each resample draws as many prompts as there are and takes Σ sums / Σ counts, so a prompt with more
/// values weighs more, as it does in the mean. Non-finite values are left out. Null if fewer than two prompts have a
/// value, or n_resamples is 0. The draws come from Philox, addressed by (resample, draw), and the prompts are put in
/// order of (sum, count) first: the interval depends on the values of each prompt, not on order or names of prompts.
/// With few prompts (below about 10) a percentile interval is too narrow; the caller warns.
std::optional<Interval> bootstrap_mean(std::span<const double> values, std::span<const std::int32_t> clusters,
                                       const StatOptions& options = {});

}  // namespace kvdiv
