#include "kvdiv/stats/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "draws.h"
#include "kvdiv/base/error.h"
#include "kvdiv/stats/sum.h"
#include "moments.h"

namespace kvdiv {
namespace {

struct Cluster {
  double sum = 0.0;
  std::int64_t n = 0;
  auto operator<=>(const Cluster&) const = default;
};

/// The prompts that have a finite value, in an order that depends on their values only.
std::vector<Cluster> cluster_sums(std::span<const double> values, std::span<const std::int32_t> clusters) {
  std::unordered_map<std::int32_t, std::pair<CompensatedSum, std::int64_t>> sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    auto& [sum, n] = sums[clusters[i]];
    sum.add(values[i]);
    ++n;
  }
  std::vector<Cluster> out;
  for (const auto& [id, entry] : sums) out.push_back({entry.first.value(), entry.second});
  std::sort(out.begin(), out.end());
  return out;
}

double resample_mean(std::span<const Cluster> clusters, std::uint32_t resample, std::uint64_t seed) {
  double sum = 0.0;
  std::int64_t n = 0;
  draw_clusters(clusters.size(), resample, seed, [&](std::uint32_t i) {
    sum += clusters[i].sum;
    n += clusters[i].n;
  });
  return sum / static_cast<double>(n);
}

std::optional<Interval> bootstrap(std::span<const Cluster> clusters, const StatOptions& options) {
  if (clusters.size() < 2 || options.n_resamples < 1) return std::nullopt;
  std::vector<double> means(static_cast<std::size_t>(options.n_resamples));
  for (std::size_t r = 0; r < means.size(); ++r)
    means[r] = resample_mean(clusters, static_cast<std::uint32_t>(r), options.seed);
  std::sort(means.begin(), means.end());
  return Interval{quantile_sorted(means, 0.025), quantile_sorted(means, 0.975)};
}

void set_quantiles(std::span<const double> sorted, Stat& s) {
  s.min = sorted.front();
  s.p1 = quantile_sorted(sorted, 0.01);
  s.p5 = quantile_sorted(sorted, 0.05);
  s.p25 = quantile_sorted(sorted, 0.25);
  s.median = quantile_sorted(sorted, 0.5);
  s.p75 = quantile_sorted(sorted, 0.75);
  s.p95 = quantile_sorted(sorted, 0.95);
  s.p99 = quantile_sorted(sorted, 0.99);
  s.max = sorted.back();
}

void set_interval(std::span<const Cluster> clusters, const StatOptions& options, Stat& s) {
  if (clusters.size() < 2) {
    s.ci_method = "none: one prompt";
  } else if (const auto ci = bootstrap(clusters, options)) {
    s.ci_low = std::clamp(ci->low, *s.min, *s.max);  // as for the mean: no bound beyond the values by rounding
    s.ci_high = std::clamp(ci->high, *s.min, *s.max);
    s.ci_method = fmt::format("95 % percentile bootstrap of the mean by prompt, {} resamples", options.n_resamples);
  } else {
    s.ci_method = "none: not computed";
  }
}

}  // namespace

double quantile_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) fail(ErrorKind::internal, "quantile_sorted: no values");
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(position), sorted.size() - 1);
  const double low = sorted[below], high = sorted[std::min(below + 1, sorted.size() - 1)];
  const double t = position - static_cast<double>(below), gap = high - low;
  // From the nearer end, so that t = 1 gives `high` exactly and the result is monotonic in q.
  return t < 0.5 ? low + gap * t : high - gap * (1.0 - t);
}

std::optional<Interval> bootstrap_mean(std::span<const double> values, std::span<const std::int32_t> clusters,
                                       const StatOptions& options) {
  if (values.size() != clusters.size())
    fail(ErrorKind::internal, "bootstrap_mean: {} values, {} clusters", values.size(), clusters.size());
  return bootstrap(cluster_sums(values, clusters), options);
}

Stat summarize(std::span<const double> values, std::span<const std::int32_t> clusters, const StatOptions& options) {
  if (values.size() != clusters.size())
    fail(ErrorKind::internal, "summarize: {} values, {} clusters", values.size(), clusters.size());
  std::vector<double> sorted = finite_values(values);
  std::sort(sorted.begin(), sorted.end());
  Stat s;
  s.n = static_cast<std::int64_t>(sorted.size());
  s.n_nonfinite = static_cast<std::int64_t>(values.size() - sorted.size());
  if (sorted.empty()) return s;
  const Moments m = moments(sorted);
  s.mean = m.mean;
  if (s.n > 1) s.std = std::sqrt(m.squares / (m.n - 1.0));
  set_quantiles(sorted, s);
  set_interval(cluster_sums(values, clusters), options, s);
  return s;
}

std::vector<std::int32_t> own_clusters(std::size_t n) {
  std::vector<std::int32_t> clusters(n);
  std::iota(clusters.begin(), clusters.end(), 0);
  return clusters;
}

Stat summarize(std::span<const double> values, const StatOptions& options) {
  return summarize(values, own_clusters(values.size()), options);
}

}  // namespace kvdiv
