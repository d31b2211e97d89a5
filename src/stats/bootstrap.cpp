#include "kvdiv/stats/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "distributions.h"
#include "draws.h"
#include "kvdiv/base/error.h"
#include "kvdiv/stats/sum.h"
#include "moments.h"

namespace kvdiv {
namespace {

using Indices = std::vector<std::uint32_t>;
using Counts = std::vector<std::int64_t>;  // how often each cluster was drawn

std::optional<double> defined(const ClusterStatistic& statistic, std::span<const std::uint32_t> clusters) {
  const std::optional<double> value = statistic(clusters);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The statistic of every resample on which it is defined, ascending.
std::vector<double> resampled(std::uint32_t n, const ClusterStatistic& statistic, const StatOptions& options) {
  std::vector<double> out;
  Counts counts(n);
  Indices drawn(n);
  for (int r = 0; r < options.n_resamples; ++r) {
    std::fill(counts.begin(), counts.end(), 0);
    draw_clusters(n, static_cast<std::uint32_t>(r), options.seed, [&](std::uint32_t i) { ++counts[i]; });
    auto end = drawn.begin();
    for (std::uint32_t i = 0; i < n; ++i) end = std::fill_n(end, counts[i], i);
    if (const auto value = defined(statistic, drawn)) out.push_back(*value);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// BCa's a; null if the statistic is undefined with a cluster left out.
std::optional<double> acceleration(const Indices& all, const ClusterStatistic& statistic) {
  std::vector<double> values;
  for (std::size_t left_out = 0; left_out < all.size(); ++left_out) {
    Indices others = all;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    const auto value = defined(statistic, others);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  divide_by_power(values, common_exponent({values}));  // a has no unit
  const Moments m = moments(values);
  if (m.squares == 0.0) return 0.0;
  CompensatedSum cubes;
  for (const double x : values) cubes.add((m.mean - x) * (m.mean - x) * (m.mean - x));
  return cubes.value() / (6.0 * m.squares * std::sqrt(m.squares));
}

struct Tails {
  double low = 0.0, high = 0.0;  ///< quantiles of the resampled statistic
};

/// Null, and a reason in `out`, where BCa has no interval.
std::optional<Tails> bca_tails(BootstrapInterval& out, std::span<const double> sorted, double tail,
                               std::optional<double> a) {
  if (!a) {
    out.reason = "the statistic is undefined with one of the clusters left out";
    return std::nullopt;
  }
  const auto [from, to] = std::equal_range(sorted.begin(), sorted.end(), *out.value);
  const double below = 0.5 * static_cast<double>((from - sorted.begin()) + (to - sorted.begin()));
  const double share = below / static_cast<double>(sorted.size());
  if (share == 0.0 || share == 1.0) {
    out.reason = "all resamples lie on one side of the value";
    return std::nullopt;
  }
  const double z0 = normal_quantile(share), reach = normal_quantile(tail);
  const double low = z0 + reach, high = z0 - reach;
  if (!(1.0 - *a * low > 0.0) || !(1.0 - *a * high > 0.0)) {
    out.reason = "BCa does not apply: acceleration too large";
    return std::nullopt;
  }
  return Tails{normal_cdf(z0 + low / (1.0 - *a * low)), normal_cdf(z0 + high / (1.0 - *a * high))};
}

/// Why there can be no interval, before any resample is drawn.
std::optional<std::string> refusal(std::int64_t n_clusters, const StatOptions& options, double level) {
  if (n_clusters < 2) return "fewer than two clusters";
  if (n_clusters > std::numeric_limits<std::uint32_t>::max()) return "too many clusters";
  if (options.n_resamples < 1) return "no resamples";
  if (!(level > 0.0 && level < 1.0)) return "the level is not between 0 and 1";
  return std::nullopt;
}

// ---- of values -----------------------------------------------------------------------------------------------------

using Groups = std::vector<std::vector<double>>;  // the finite values of each cluster

Groups group(std::span<const double> values, std::span<const std::int32_t> clusters, std::string_view who) {
  if (values.size() != clusters.size())
    fail(ErrorKind::internal, "{}: {} values, {} clusters", who, values.size(), clusters.size());
  std::unordered_map<std::int32_t, std::size_t> index;
  Groups groups;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [at, is_new] = index.emplace(clusters[i], groups.size());
    if (is_new) groups.emplace_back();
    if (std::isfinite(values[i])) groups[at->second].push_back(values[i]);
  }
  std::erase_if(groups, [](const auto& g) { return g.empty(); });
  return groups;
}

Groups ordered_group(std::span<const double> values, std::span<const std::int32_t> clusters, std::string_view who) {
  Groups groups = group(values, clusters, who);
  for (auto& g : groups) std::sort(g.begin(), g.end());
  std::sort(groups.begin(), groups.end());
  return groups;
}

/// The median of drawn clusters, from all values sorted once: a resample costs a walk, not a sort.
class Median {
 public:
  explicit Median(const Groups& groups) : sizes_(groups.size()), counts_(groups.size()) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      sizes_[i] = static_cast<std::int64_t>(groups[i].size());
      for (const double x : groups[i]) sorted_.emplace_back(x, i);
    }
    std::sort(sorted_.begin(), sorted_.end());
  }
  std::optional<double> operator()(std::span<const std::uint32_t> drawn) {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::int64_t n = 0, seen = 0;
    for (const std::uint32_t i : drawn) {
      ++counts_[i];
      n += sizes_[i];
    }
    std::optional<double> low;  // the value of rank (n − 1)/2 from 0, rounded down; the median's other one is n/2
    for (const auto& [x, cluster] : sorted_) {
      seen += counts_[cluster];
      if (!low && seen > (n - 1) / 2) low = x;
      if (seen > n / 2) return 0.5 * *low + 0.5 * x;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::pair<double, std::size_t>> sorted_;
  Counts sizes_, counts_;
};

}  // namespace

BootstrapInterval bootstrap_interval(std::int64_t n_clusters, const ClusterStatistic& statistic, BootstrapMethod method,
                                     const StatOptions& options, double level) {
  BootstrapInterval out;
  out.n_clusters = n_clusters;
  out.method = fmt::format("{:.6g} % {} bootstrap by cluster, {} resamples", 100.0 * level, name_of(method),
                           options.n_resamples);
  if (n_clusters < 1 || n_clusters > std::numeric_limits<std::uint32_t>::max()) {
    out.reason = refusal(n_clusters, options, level);
    return out;
  }
  Indices all(static_cast<std::size_t>(n_clusters));
  std::iota(all.begin(), all.end(), 0u);
  out.value = defined(statistic, all);
  out.reason = out.value ? refusal(n_clusters, options, level) : "the statistic is undefined on the sample";
  if (out.reason) return out;
  const std::vector<double> sorted = resampled(static_cast<std::uint32_t>(n_clusters), statistic, options);
  out.n_undefined = options.n_resamples - static_cast<std::int64_t>(sorted.size());
  if (sorted.empty()) {
    out.reason = "the statistic is undefined on all resamples";
  } else if (sorted.front() == sorted.back()) {
    out.low = out.high = sorted.front();
    out.reason = "all resamples are equal";
  } else {
    std::optional<Tails> tails = Tails{0.5 * (1.0 - level), 0.5 * (1.0 + level)};
    if (method == BootstrapMethod::bca) tails = bca_tails(out, sorted, tails->low, acceleration(all, statistic));
    if (tails) {
      out.low = quantile_sorted(sorted, tails->low);
      out.high = quantile_sorted(sorted, tails->high);
    }
  }
  return out;
}

BootstrapInterval mean_interval_bca(std::span<const double> values, std::span<const std::int32_t> clusters,
                                    const StatOptions& options) {
  std::vector<std::pair<double, double>> sums;  // and counts
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& g : ordered_group(values, clusters, "mean_interval_bca")) {
    CompensatedSum sum;
    for (const double x : g) sum.add(x);
    sums.emplace_back(sum.value(), static_cast<double>(g.size()));
    low = std::min(low, g.front());
    high = std::max(high, g.back());
  }
  const auto mean = [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
    CompensatedSum sum;
    double n = 0.0;
    for (const std::uint32_t i : drawn) {
      sum.add(sums[i].first);
      n += sums[i].second;
    }
    return std::clamp(sum.value() / n, low, high);  // rounding must not give equal values a spread
  };
  return bootstrap_interval(static_cast<std::int64_t>(sums.size()), mean, BootstrapMethod::bca, options);
}

BootstrapInterval median_interval(std::span<const double> values, std::span<const std::int32_t> clusters,
                                  const StatOptions& options) {
  const Groups groups = ordered_group(values, clusters, "median_interval");
  return bootstrap_interval(static_cast<std::int64_t>(groups.size()), Median(groups), BootstrapMethod::bca, options);
}

BootstrapInterval ratio_of_sums(std::span<const std::pair<double, double>> clusters) {
  return bootstrap_interval(
      std::ssize(clusters),
      [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
        double sum = 0.0, weight = 0.0;
        for (const std::uint32_t i : drawn) sum += clusters[i].first, weight += clusters[i].second;
        return weight > 0.0 ? std::optional(sum / weight) : std::nullopt;
      },
      BootstrapMethod::percentile);
}

std::vector<double> cluster_means(std::span<const double> values, std::span<const std::int32_t> clusters) {
  std::vector<double> means;
  for (auto& g : group(values, clusters, "cluster_means")) means.push_back(moments(g).mean);
  return means;
}

}  // namespace kvdiv
