#include "kvdiv/stats/bootstrap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kvdiv/base/error.h"
#include "stats/stats_checks.h"

namespace kvdiv {
namespace {

using Drawn = std::span<const std::uint32_t>;

StatOptions resamples(int n, std::uint64_t seed = 1) {
  StatOptions options;
  options.n_resamples = n;
  options.seed = seed;
  return options;
}

ClusterStatistic mean_of(Values values) {
  return [values = std::move(values)](Drawn drawn) -> std::optional<double> {
    double sum = 0.0;
    for (const std::uint32_t i : drawn) sum += values.at(i);
    return sum / static_cast<double>(drawn.size());
  };
}

Clusters own_clusters(std::size_t n) {
  Clusters c(n);
  std::iota(c.begin(), c.end(), 0);
  return c;
}

void expect_none(const BootstrapInterval& b, std::string_view reason) {
  EXPECT_EQ(b.reason, reason);
  EXPECT_FALSE(b.low);
  EXPECT_FALSE(b.high);
  expect_finite(b);
}

TEST(Bootstrap, PercentileOfTheMeanIsThatOfSummaries) {
  Values v = normal_values(30, 1);
  std::sort(v.begin(), v.end());  // the order in which summaries put prompts of one value each
  const BootstrapInterval b = bootstrap_interval(30, mean_of(v), BootstrapMethod::percentile);
  const auto summary = bootstrap_mean(v, own_clusters(30));
  EXPECT_NEAR(*b.low, summary->low, 1e-13);
  EXPECT_NEAR(*b.high, summary->high, 1e-13);
  EXPECT_EQ(b.method, "95 % percentile bootstrap by cluster, 2000 resamples");
  EXPECT_EQ(mean_interval_bca(v, own_clusters(30)).method, "95 % BCa bootstrap by cluster, 2000 resamples");
}

TEST(Bootstrap, DrawsAreSortedIndicesOfAllClusters) {
  std::vector<int> seen(7);
  std::set<std::vector<std::uint32_t>> distinct;
  const ClusterStatistic statistic = [&](Drawn drawn) -> std::optional<double> {
    EXPECT_EQ(drawn.size(), 7u);
    EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
    for (const std::uint32_t i : drawn) ++seen.at(i);
    distinct.insert({drawn.begin(), drawn.end()});
    return drawn[0];
  };
  bootstrap_interval(7, statistic, BootstrapMethod::percentile, resamples(700));
  for (const int count : seen) EXPECT_NEAR(count, 700, 100);
  EXPECT_GT(distinct.size(), 400u);
}

TEST(Bootstrap, DegenerateInputIsNullWithAReason) {
  for (const auto method : {BootstrapMethod::percentile, BootstrapMethod::bca}) {
    const auto interval = [&](std::int64_t n, const ClusterStatistic& s, int b = 50, double level = 0.95) {
      return bootstrap_interval(n, s, method, resamples(b), level);
    };
    const ClusterStatistic mean = mean_of({1, 2, 3}), none = [](Drawn) { return std::nullopt; },
                           nan = [](Drawn) { return kNan; };
    expect_none(interval(-1, mean), "fewer than two clusters");
    expect_none(interval(0, mean), "fewer than two clusters");
    expect_none(interval(1, mean), "fewer than two clusters");
    EXPECT_EQ(interval(1, mean).value, 1.0);
    expect_none(interval(std::int64_t{1} << 40, mean), "too many clusters");
    expect_none(interval(3, none), "the statistic is undefined on the sample");
    expect_none(interval(3, nan), "the statistic is undefined on the sample");
    expect_none(interval(3, mean, 0), "no resamples");
    for (const double level : {0.0, 1.0, -1.0, kNan})
      expect_none(interval(3, mean, 50, level), "the level is not between 0 and 1");
    const BootstrapInterval constant = interval(4, mean_of(Values(4, 0.5)));
    EXPECT_EQ(constant.low, 0.5);
    EXPECT_EQ(constant.high, 0.5);
    EXPECT_EQ(constant.reason, "all resamples are equal");
    const auto only_whole = [](Drawn d) {
      return std::adjacent_find(d.begin(), d.end()) == d.end() ? std::optional(1.0) : std::nullopt;
    };
    expect_none(interval(30, only_whole), "the statistic is undefined on all resamples");
    EXPECT_EQ(interval(30, only_whole).n_undefined, 50);
  }
}

TEST(Bootstrap, UndefinedResamplesAreCountedAndLeftOut) {
  const ClusterStatistic statistic = [](Drawn drawn) -> std::optional<double> {
    const double sum = std::accumulate(drawn.begin(), drawn.end(), 0.0);
    return drawn.back() < 4 && drawn.size() == 5 ? std::nullopt : std::optional(sum);
  };
  const BootstrapInterval b = bootstrap_interval(5, statistic, BootstrapMethod::percentile, resamples(1000));
  EXPECT_NEAR(static_cast<double>(b.n_undefined), 1000 * std::pow(0.8, 5), 60);
  EXPECT_TRUE(b.low);
  EXPECT_FALSE(b.reason);
}

TEST(Bootstrap, WhereBcaDoesNotApply) {
  const auto interval = [](const ClusterStatistic& s, double level = 0.95) {
    return bootstrap_interval(40, s, BootstrapMethod::bca, resamples(200), level);
  };
  const ClusterStatistic has_repeats = [](Drawn d) -> std::optional<double> {
    return std::adjacent_find(d.begin(), d.end()) == d.end() ? 0.0 : 1.0 + d[0];
  };
  expect_none(interval(has_repeats), "all resamples lie on one side of the value");
  EXPECT_EQ(interval(has_repeats).value, 0.0);
  const ClusterStatistic needs_all = [](Drawn d) -> std::optional<double> {
    return d.size() < 40 ? std::nullopt : std::optional<double>(d[20]);
  };
  expect_none(interval(needs_all), "the statistic is undefined with one of the clusters left out");
  // One jackknife value far from all others is the largest acceleration there is, just below 1/6: quantiles of 7σ need
  // less than 1/7.
  const ClusterStatistic hangs_on_one = [](Drawn d) -> std::optional<double> {
    return d.size() < 40 ? (d[0] == 0 ? 0.0 : -1.0) : static_cast<double>(d[20]);
  };
  EXPECT_TRUE(interval(hangs_on_one).low);
  expect_none(interval(hangs_on_one, 1.0 - 1e-12), "BCa does not apply: acceleration too large");
}

TEST(Bootstrap, IntervalsDependOnValuesNotOnOrderOrNames) {
  const Values v = normal_values(24, 1);
  Clusters c(24), renamed(24);
  for (std::size_t i = 0; i < 24; ++i) {
    c[i] = static_cast<std::int32_t>(i / 3);
    renamed[i] = 1000 - 7 * c[i];
  }
  Values reversed(v.rbegin(), v.rend());
  Clusters reversed_names(renamed.rbegin(), renamed.rend());
  for (const auto interval : {mean_interval_bca, median_interval})
    EXPECT_EQ(to_json_value(interval(v, c, resamples(300))),
              to_json_value(interval(reversed, reversed_names, resamples(300))));
}

TEST(Bootstrap, NonFiniteValuesAreLeftOut) {
  const Values v{1, 5, kNan, 2, 9, kInf, 7}, finite{1, 5, 2, 9, 7};
  const Clusters c{0, 0, 1, 2, 2, 3, 4}, finite_c{0, 0, 2, 2, 4};
  for (const auto interval : {mean_interval_bca, median_interval}) {
    EXPECT_EQ(to_json_value(interval(v, c, resamples(100))), to_json_value(interval(finite, finite_c, resamples(100))));
    EXPECT_EQ(interval(v, c, resamples(100)).n_clusters, 3);
    expect_none(interval(Values{}, Clusters{}, resamples(100)), "fewer than two clusters");
    expect_none(interval(Values{kNan, 1}, Clusters{0, 1}, resamples(100)), "fewer than two clusters");
    EXPECT_THROW(interval(Values{1}, Clusters{}, {}), Error);
    // Unequal sizes of clusters: sums of equal values must not get a spread by rounding.
    const BootstrapInterval equal = interval(Values(6, 0.1), Clusters{0, 1, 1, 2, 2, 2}, resamples(100));
    EXPECT_EQ(equal.low, 0.1);
    EXPECT_EQ(equal.high, 0.1);
  }
}

TEST(Bootstrap, MedianIsTheMiddleOfWhatWasDrawn) {
  EXPECT_EQ(median_interval(Values{4, 1, 3}, Clusters{0, 1, 2}).value, 3.0);
  EXPECT_EQ(median_interval(Values{4, 1, 3, 7}, Clusters{0, 0, 1, 1}).value, 3.5);
  EXPECT_EQ(median_interval(Values{1e308, 1.5e308}, Clusters{0, 1}).value, 1.25e308);
}

TEST(Bootstrap, BcaFollowsTheScaleAndMovesWithTheSkew) {
  Values v = normal_values(40, 2);
  for (double& x : v) x = std::exp(x);
  const Clusters c = own_clusters(40);
  const BootstrapInterval b = mean_interval_bca(v, c), scaled = mean_interval_bca(mapped(v, 1024.0, 0.0), c);
  EXPECT_EQ(scaled.low, 1024.0 * *b.low);
  EXPECT_EQ(scaled.high, 1024.0 * *b.high);
  const auto percentile = bootstrap_mean(v, c);  // right skew: BCa moves both bounds to the right
  EXPECT_GT(*b.low, percentile->low);
  EXPECT_GT(*b.high, percentile->high);
}

TEST(Bootstrap, BcaCoversTheMeanOfSkewedValuesBetterThanPercentiles) {
  int bca = 0, percentile = 0;
  const Clusters c = own_clusters(30);
  for (std::uint64_t seed = 100; seed < 500; ++seed) {
    Values v = normal_values(30, seed);
    for (double& x : v) x = std::exp(x);
    const BootstrapInterval b = mean_interval_bca(v, c, resamples(400));
    const auto p = bootstrap_mean(v, c, resamples(400));
    bca += *b.low <= std::exp(0.5) && std::exp(0.5) <= *b.high;
    percentile += p->low <= std::exp(0.5) && std::exp(0.5) <= p->high;
  }
  EXPECT_GT(bca, percentile);
  EXPECT_GE(bca, 340);  // 85 %: lognormal means of 30 values are hard
}

TEST(Bootstrap, SeedsOfOnePromptAreOneValue) {
  EXPECT_EQ(cluster_means(Values{1, 10, 3, 20, 5}, Clusters{7, 2, 7, 2, 9}), (Values{2, 15, 5}));
  EXPECT_EQ(cluster_means(Values{kNan, 10, 3, kInf, 5}, Clusters{7, 2, 7, 2, 9}), (Values{3, 10, 5}));
  EXPECT_EQ(cluster_means(Values{kNan, 1}, Clusters{1, 2}), (Values{1}));
  EXPECT_EQ(cluster_means(Values{}, Clusters{}), Values{});
  EXPECT_EQ(cluster_means(Values(3, 0.1), Clusters{4, 4, 4}), Values{0.1});
  EXPECT_THROW(cluster_means(Values{1}, Clusters{}), Error);
  EXPECT_EQ(find_enum<BootstrapMethod>("BCa"), BootstrapMethod::bca);
}

}  // namespace
}  // namespace kvdiv
