#pragma once
// Bootstrap intervals of any statistic, resampling whole clusters (prompts): the seeds of one prompt are one cluster.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/fields.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {

enum class BootstrapMethod { percentile, bca };
template <>
struct EnumNames<BootstrapMethod> {
  static constexpr std::string_view what = "bootstrap method";
  static constexpr std::array<std::pair<BootstrapMethod, std::string_view>, 2> values{
      {{BootstrapMethod::percentile, "percentile"}, {BootstrapMethod::bca, "BCa"}}};
};

/// In the unit of the statistic.
struct BootstrapInterval {
  std::optional<double> value;      ///< the statistic of the sample itself
  std::optional<double> low, high;  ///< null together
  std::string method;               ///< "95 % BCa bootstrap by cluster, 2000 resamples"
  std::int64_t n_clusters = 0;
  std::int64_t n_undefined = 0;       ///< resamples on which the statistic is undefined: left out of the interval
  std::optional<std::string> reason;  ///< why there is no interval, or why it has no width
};

template <class V>
void describe_fields(V& v, BootstrapInterval& b) {
  v.field("value", b.value);
  v.field("low", b.low);
  v.field("high", b.high);
  v.field("method", b.method);
  v.field("n_clusters", b.n_clusters);
  v.field("n_undefined", b.n_undefined);
  v.field("reason", b.reason);
}

/// The statistic of a sample of clusters, given as indices 0 … n_clusters − 1 in ascending order, with repeats (so that
/// the same clusters give the same bits in whatever order they were drawn). Null, or a value that is not finite, is
/// "undefined on these".
using ClusterStatistic = std::function<std::optional<double>(std::span<const std::uint32_t> drawn_clusters)>;

/// A bootstrap interval of `level` (0 < level < 1). Each resample draws as many clusters as there are, as in
/// bootstrap_mean; the same seed gives the same draws for every statistic of equally many clusters. With θ̂ the
/// statistic of the sample and θ*₁ … θ*_B those of the resamples (without the undefined ones):
/// - percentile: quantiles (1 − level)/2 and (1 + level)/2 of θ* (quantile_sorted).
/// - BCa (Efron, 1987): quantiles Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))) for z = Φ⁻¹((1 ∓ level)/2). Bias correction z₀ =
///   Φ⁻¹(#{θ* < θ̂}/B), θ* = θ̂ counted half; acceleration a = Σd³/(6(Σd²)^1.5), d the mean of the jackknife values
///   minus each of them, one cluster left out at a time; a = 0 where the jackknife values are all equal.
/// Null with a reason: fewer than two clusters, no resamples, a level out of range, statistic undefined on the sample
/// or on all resamples; for BCa also undefined on a jackknife sample, or all θ* on one side of θ̂, or a so large that
/// the quantiles are not in order. All θ* equal: low = high = that value, and `reason` says so. With few clusters
/// (below about 10) both intervals are too narrow.
BootstrapInterval bootstrap_interval(std::int64_t n_clusters, const ClusterStatistic& statistic, BootstrapMethod method,
                                     const StatOptions& options = {}, double level = 0.95);

/// 95 % BCa intervals of the mean (Σ sums/Σ counts of the drawn clusters) and of the median of values; clusters[i] is
/// the cluster of values[i]. Sizes must be equal (internal error). Values that are not finite are left out, and with
/// them clusters that have no others. Clusters are put in order of their values first, so that the interval depends on
/// the values of each cluster, not on order or names.
BootstrapInterval mean_interval_bca(std::span<const double> values, std::span<const std::int32_t> clusters,
                                    const StatOptions& options = {});
BootstrapInterval median_interval(std::span<const double> values, std::span<const std::int32_t> clusters,
                                  const StatOptions& options = {});

/// Σ first / Σ second over clusters, a sum and its weight each, with its 95 % percentile interval: rates, and means of
/// clusters of unequal size. Undefined where the weights sum to 0.
BootstrapInterval ratio_of_sums(std::span<const std::pair<double, double>> clusters);

/// One mean per cluster, in order of first occurrence: what tests that take independent values are given. Values that
/// are not finite are left out, and clusters that have no others with them. Sizes must be equal (internal error).
std::vector<double> cluster_means(std::span<const double> values, std::span<const std::int32_t> clusters);

}  // namespace kvdiv
