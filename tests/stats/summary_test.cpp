#include "kvdiv/stats/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

using Values = std::vector<double>;
using Clusters = std::vector<std::int32_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Summary, KeysAreThoseOfTheDesignInOrder) {
  EXPECT_EQ(field_keys<Stat>(),
            (std::vector<std::string>{"n", "n_nonfinite", "mean", "std", "min", "p1", "p5", "p25", "median", "p75",
                                      "p95", "p99", "max", "ci_low", "ci_high", "ci_method"}));
}

TEST(Summary, NothingIsNullEverywhere) {
  const Stat s = summarize(Values{});
  EXPECT_EQ(
      to_json_value(s).dump(),
      R"({"n":0,"n_nonfinite":0,"mean":null,"std":null,"min":null,"p1":null,"p5":null,"p25":null,"median":null,)"
      R"("p75":null,"p95":null,"p99":null,"max":null,"ci_low":null,"ci_high":null,"ci_method":"none: no values"})");
  const Stat none_finite = summarize(Values{kNan, kInf});
  EXPECT_EQ(none_finite.n, 0);
  EXPECT_EQ(none_finite.n_nonfinite, 2);
  EXPECT_FALSE(none_finite.mean);
}

TEST(Summary, OneValueHasNoSpread) {
  const Stat s = summarize(Values{4.25});
  EXPECT_EQ(s.n, 1);
  EXPECT_EQ(s.mean, 4.25);
  EXPECT_FALSE(s.std);
  for (const auto& q : {s.min, s.p1, s.p5, s.p25, s.median, s.p75, s.p95, s.p99, s.max}) EXPECT_EQ(q, 4.25);
  EXPECT_FALSE(s.ci_low);
  EXPECT_EQ(s.ci_method, "none: one prompt");
}

TEST(Summary, EqualValuesHaveNoSpreadAndLargeOnesKeepTheirs) {
  for (const double x : {0.1, 1e8 / 3, -7e-300}) {
    const Stat s = summarize(Values{x, x, x});
    EXPECT_EQ(s.mean, x);
    EXPECT_EQ(s.std, 0.0);
    EXPECT_EQ(s.ci_low, x);
    EXPECT_EQ(s.ci_high, x);
  }
  EXPECT_EQ(summarize(Values{1e8, 1e8 + 1, 1e8 + 2}).std, 1.0);
  EXPECT_EQ(summarize(Values{1e15, 1e15 + 1, 1e15 + 2}).std, 1.0);
}

TEST(Summary, AgreesWithNumpy) {
  const Values v{1.3236824606551243,  -0.9926104556822629, 7.29231356102334,    -0.7562763888092308,
                 0.32882952473454835, 4.74744335118469,    -2.7276972145687255, -1.7749099737908653,
                 0.5628096775111064,  -0.9896098733380777, -3.5782938372654183};
  const Stat s = summarize(v);
  EXPECT_DOUBLE_EQ(*s.mean, 0.3123346210594752);
  EXPECT_DOUBLE_EQ(*s.std, 3.2054855125251795);
  EXPECT_DOUBLE_EQ(*s.p1, -3.493234174995749);
  EXPECT_DOUBLE_EQ(*s.p5, -3.152995525917072);
  EXPECT_DOUBLE_EQ(*s.p25, -1.3837602147365642);
  EXPECT_DOUBLE_EQ(*s.median, -0.7562763888092308);
  EXPECT_DOUBLE_EQ(*s.p75, 0.9432460690831154);
  EXPECT_DOUBLE_EQ(*s.p95, 6.019878456104015);
  EXPECT_DOUBLE_EQ(*s.p99, 7.037826540039475);
  EXPECT_EQ(s.min, -3.5782938372654183);
  EXPECT_EQ(s.max, 7.29231356102334);
}

TEST(Summary, QuantilesInterpolateLinearly) {
  const Values v{1, 2, 4, 8};
  EXPECT_EQ(quantile_sorted(v, 0.0), 1.0);
  EXPECT_EQ(quantile_sorted(v, 0.5), 3.0);
  EXPECT_EQ(quantile_sorted(v, 0.25), 1.75);
  EXPECT_EQ(quantile_sorted(v, 1.0), 8.0);
  EXPECT_THROW(quantile_sorted(Values{}, 0.5), Error);
}

TEST(Summary, NonFiniteValuesAreCountedNotAveraged) {
  const Stat s = summarize(Values{1, kNan, 3, kInf, -kInf, 5});
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.n_nonfinite, 3);
  EXPECT_EQ(s.mean, 3.0);
  EXPECT_EQ(s.std, 2.0);
  EXPECT_EQ(s.max, 5.0);
}

Values normal_values(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(10.0, 2.0);
  Values v(n);
  for (double& x : v) x = normal(random);
  return v;
}

TEST(Summary, IntervalHasTheWidthOfTheStandardError) {
  const Values v = normal_values(400, 3);
  const Stat s = summarize(v);
  const double half = 1.96 * *s.std / std::sqrt(400.0);
  EXPECT_NEAR(*s.ci_low, *s.mean - half, 0.1 * half);
  EXPECT_NEAR(*s.ci_high, *s.mean + half, 0.1 * half);
  EXPECT_EQ(s.ci_method, "95 % percentile bootstrap of the mean by prompt, 2000 resamples");
}

TEST(Summary, IntervalCoversTheTruthAboutAsOftenAsItSays) {
  int covered = 0;
  StatOptions options;
  options.n_resamples = 400;
  for (std::uint64_t seed = 100; seed < 500; ++seed) {
    const Stat s = summarize(normal_values(40, seed), options);
    covered += *s.ci_low <= 10.0 && 10.0 <= *s.ci_high;
  }
  EXPECT_GE(covered, 360);  // 90 %: percentile intervals of 40 values cover about 93 to 94 %
  EXPECT_LE(covered, 392);  // 98 %
}

TEST(Summary, RepeatsOfOnePromptAreNotEvidence) {
  const Values once = normal_values(50, 5);
  Values five_times;
  Clusters prompts, own;
  for (std::int32_t i = 0; i < 50; ++i)
    for (int repeat = 0; repeat < 5; ++repeat) {
      five_times.push_back(once[static_cast<std::size_t>(i)]);
      prompts.push_back(i);
      own.push_back(static_cast<std::int32_t>(own.size()));
    }
  const Stat single = summarize(once), clustered = summarize(five_times, prompts), naive = summarize(five_times, own);
  EXPECT_NEAR(*clustered.ci_low, *single.ci_low, 1e-12);
  EXPECT_NEAR(*clustered.ci_high, *single.ci_high, 1e-12);
  EXPECT_LT(*naive.ci_high - *naive.ci_low, 0.6 * (*clustered.ci_high - *clustered.ci_low));
}

TEST(Summary, OnePromptHasNoIntervalHoweverManyValues) {
  const Stat s = summarize(Values{1, 2, 3}, Clusters{4, 4, 4});
  EXPECT_FALSE(s.ci_low);
  EXPECT_FALSE(s.ci_high);
  EXPECT_EQ(s.ci_method, "none: one prompt");
  const Stat other_not_finite = summarize(Values{1, 2, kNan}, Clusters{4, 4, 5});
  EXPECT_EQ(other_not_finite.ci_method, "none: one prompt");
}

TEST(Summary, IntervalDoesNotDependOnOrderOrNamesOfPrompts) {
  const Values v = normal_values(60, 9);
  Clusters c(60);
  for (std::size_t i = 0; i < 60; ++i) c[i] = static_cast<std::int32_t>(i / 3);
  const Stat s = summarize(v, c);
  Values moved;
  Clusters renamed;
  for (std::size_t block = 20; block-- > 0;)
    for (std::size_t i = 0; i < 3; ++i) {
      moved.push_back(v[3 * block + i]);
      renamed.push_back(static_cast<std::int32_t>(7 * block) - 1000);
    }
  const Stat t = summarize(moved, renamed);
  EXPECT_EQ(s.ci_low, t.ci_low);
  EXPECT_EQ(s.ci_high, t.ci_high);
  EXPECT_EQ(to_json_value(s).dump(), to_json_value(summarize(v, c)).dump());
}

TEST(Summary, TwoPromptsResampleToThreeMeans) {
  // (a, a), (a, b) or (b, a), (b, b): the outer quantiles of 2000 draws are the prompts themselves.
  const Stat s = summarize(Values{1, 3}, Clusters{0, 1});
  EXPECT_EQ(s.ci_low, 1.0);
  EXPECT_EQ(s.ci_high, 3.0);
}

TEST(Summary, WeightOfAPromptIsItsCount) {
  // Prompt 0 has 9 values of 0, prompt 1 one value of 10: resamples are 0, 1 (both once) and 10.
  Values v(9, 0.0);
  v.push_back(10.0);
  Clusters c(9, 0);
  c.push_back(1);
  EXPECT_EQ(summarize(v, c).mean, 1.0);
  const auto ci = bootstrap_mean(v, c);
  ASSERT_TRUE(ci);
  EXPECT_EQ(ci->low, 0.0);
  EXPECT_EQ(ci->high, 10.0);
}

TEST(Summary, IntervalsCanBeLeftOut) {
  StatOptions options;
  options.n_resamples = 0;
  const Stat s = summarize(Values{1, 2, 3}, options);
  EXPECT_FALSE(s.ci_low);
  EXPECT_EQ(s.ci_method, "none: not computed");
  EXPECT_EQ(s.mean, 2.0);
}

TEST(Summary, SizesMustAgree) {
  EXPECT_THROW(summarize(Values{1, 2}, Clusters{0}), Error);
  EXPECT_THROW(bootstrap_mean(Values{1, 2}, Clusters{0}), Error);
}

TEST(Summary, ReadsBackWhatItWrites) {
  const Stat s = summarize(normal_values(30, 1));
  Stat read;
  from_json_value(Json::parse(to_json_value(s).dump()), read, "stat");
  EXPECT_EQ(to_json_value(read).dump(), to_json_value(s).dump());
}

}  // namespace
}  // namespace kvdiv
