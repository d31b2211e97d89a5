#include "kvdiv/stats/correlation.h"

#include <gtest/gtest.h>

#include "kvdiv/base/error.h"
#include "stats/stats_checks.h"

namespace kvdiv {
namespace {

using Function = TestResult (*)(const Values&, const Values&);
TestResult run_pearson(const Values& x, const Values& y) { return pearson(x, y); }
TestResult run_spearman(const Values& x, const Values& y) { return spearman(x, y); }
const Function kTests[] = {run_pearson, run_spearman};

void expect_nothing(const TestResult& t, std::string_view reason) {
  EXPECT_EQ(t.reason, reason) << t.test;
  for (const auto& value : {t.statistic, t.df, t.p, t.effect, t.ci_low, t.ci_high, t.min_detectable_effect})
    EXPECT_FALSE(value);
}

TEST(Correlation, TooFewPairsAreAReason) {
  for (const Function test : kTests) {
    for (const std::size_t n : {0u, 1u, 2u})
      expect_nothing(test(normal_values(n, 1), normal_values(n, 2)), "fewer than 3 rows of finite values");
    expect_nothing(test({1, kNan, 3, 4}, {1, 2, kInf, 5}), "fewer than 3 rows of finite values");
    const TestResult three = test({1, 2, 3}, {1, 3, 2});
    EXPECT_DOUBLE_EQ(*three.effect, 0.5);
    EXPECT_NEAR(*three.p, 2.0 / 3.0, 1e-14);
    EXPECT_FALSE(three.ci_low);
    EXPECT_FALSE(three.min_detectable_effect);
    EXPECT_EQ(three.reason, "one degree of freedom: no interval");
  }
}

TEST(Correlation, ConstantsAreAReason) {
  for (const Function test : kTests)
    for (const double x : {0.0, 0.1, 1e8 / 3, -7e-300, 1e300}) {
      expect_nothing(test(Values(5, x), normal_values(5, 1)), "x is constant");
      expect_nothing(test(normal_values(5, 1), Values(5, x)), "y is constant");
      expect_nothing(test(Values(5, x), Values(5, x)), "x is constant");
    }
}

TEST(Correlation, SizesMustAgree) {
  EXPECT_THROW(pearson(Values{1, 2}, Values{1}), Error);
  EXPECT_THROW(spearman(Values{1, 2}, Values{1}), Error);
  EXPECT_THROW(partial_correlation(Values{1, 2}, Values{1, 2}, Values{1}), Error);
}

TEST(Correlation, PerfectCorrelationIsTheLimit) {
  const Values x{1, 2, 3, 4, 5, 6}, up{-1, -0.5, 0, 0.5, 1, 1.5}, down{6, 4, 2, 0, -2, -4}, curve{1, 2, 4, 8, 16, 99};
  for (const Function test : kTests)
    for (const auto& [y, r] : {std::pair(up, 1.0), {down, -1.0}}) {
      const TestResult t = test(x, y);
      EXPECT_NEAR(*t.effect, r, 1e-15);
      EXPECT_LE(std::abs(*t.effect), 1.0);
      EXPECT_LT(*t.p, 1e-28);
      EXPECT_NEAR(*t.ci_low, r, 1e-6);
      EXPECT_NEAR(*t.ci_high, r, 1e-6);
      expect_finite(t);
    }
  const TestResult t = spearman(x, curve);
  EXPECT_NEAR(*t.effect, 1.0, 1e-15);
  EXPECT_LT(*pearson(x, curve).effect, 0.9);
  // These have length-1 deviations without rounding, so that r is 1 exactly.
  const TestResult exact = pearson(Values{-1, -1, 1, 1}, Values{3, 3, 5, 5});
  EXPECT_EQ(exact.effect, 1.0);
  EXPECT_EQ(exact.p, 0.0);
  EXPECT_FALSE(exact.statistic);
  EXPECT_EQ(exact.ci_low, 1.0);
  EXPECT_EQ(exact.ci_high, 1.0);
  EXPECT_EQ(exact.reason, "perfect correlation: t is infinite");
}

TEST(Correlation, NonFiniteValuesTakeTheirPairsAlong) {
  const Values x = normal_values(8, 1), y = normal_values(8, 2), z = normal_values(8, 3);
  const Values dirty_x{kNan, x[0], x[1], x[2], 5, x[3], x[4], x[5], x[6], x[7]},
      dirty_y{1, y[0], y[1], y[2], -kInf, y[3], y[4], y[5], y[6], y[7]};
  for (const Function test : kTests) EXPECT_EQ(to_json_value(test(dirty_x, dirty_y)), to_json_value(test(x, y)));
  Values long_x = x, long_y = y, long_z = z;
  long_x.push_back(1);
  long_y.push_back(1);
  long_z.push_back(kNan);
  EXPECT_EQ(to_json_value(partial_correlation(long_x, long_y, long_z)), to_json_value(partial_correlation(x, y, z)));
}

TEST(Correlation, SymmetricAndIndependentOfUnits) {
  const Values x = normal_values(20, 1), z = normal_values(20, 3);
  Values y = normal_values(20, 2);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += 0.6 * x[i];
  for (const Function test : kTests) {
    const TestResult t = test(x, y), swapped = test(y, x), negative = test(x, mapped(y, -2.0, 1.0));
    EXPECT_EQ(t.effect, swapped.effect);
    EXPECT_EQ(t.p, swapped.p);
    expect_near(negative.effect, -*t.effect, 1e-13);
    expect_near(negative.ci_high, -*t.ci_low, 1e-13);
    for (const double factor : {1e-300, 1e-8, 1e6, 1e300}) {
      const TestResult moved = test(mapped(x, factor, 0.5 * factor), mapped(y, 7.0, -3.0));
      expect_near(moved.effect, t.effect, 1e-13);
      expect_near(moved.p, t.p, 1e-12);
      EXPECT_EQ(moved.min_detectable_effect, t.min_detectable_effect);
    }
  }
  const TestResult t = partial_correlation(x, y, z);
  expect_near(partial_correlation(y, x, z).effect, t.effect, 1e-13);
  expect_near(partial_correlation(x, y, mapped(z, -1e200, 1e200)).effect, t.effect, 1e-12);
}

TEST(Correlation, SpearmanSeesTheOrderOnly) {
  const Values x = normal_values(30, 1), y = normal_values(30, 2);
  Values curved = x;
  for (double& v : curved) v = std::exp(3.0 * v);
  EXPECT_EQ(spearman(curved, y).effect, spearman(x, y).effect);
}

TEST(Correlation, RanksOfTiesAreAverages) {
  EXPECT_EQ(average_ranks(Values{}), Values{});
  EXPECT_EQ(average_ranks(Values{7}), Values{1});
  EXPECT_EQ(average_ranks(Values{3, 1, 2}), (Values{3, 1, 2}));
  EXPECT_EQ(average_ranks(Values{2, 1, 2, 0, 2}), (Values{4, 2, 4, 1, 4}));
  EXPECT_EQ(average_ranks(Values{5, 5, 5, 5}), Values(4, 2.5));
  EXPECT_EQ(average_ranks(Values{0.0, -0.0, -kInf, kInf}), (Values{2.5, 2.5, 1, 4}));
  EXPECT_THROW(average_ranks(Values{1, kNan}), Error);
}

TEST(Correlation, PartialTakesTheControlsOut) {
  // x and y have nothing in common but z.
  const Values z = normal_values(400, 1);
  Values x = normal_values(400, 2), y = normal_values(400, 3);
  for (std::size_t i = 0; i < z.size(); ++i) {
    x[i] += 2 * z[i];
    y[i] -= 3 * z[i];
  }
  EXPECT_LT(*pearson(x, y).p, 1e-60);
  EXPECT_GT(*partial_correlation(x, y, z).p, 0.01);
  EXPECT_EQ(partial_correlation(x, y, z).df, 397.0);
  EXPECT_EQ(partial_correlation(x, y, z).variant, "t, 1 control removed");
  EXPECT_EQ(partial_correlation(x, y, std::span<const std::span<const double>>{}).p, pearson(x, y).p);
}

TEST(Correlation, PartialOfThreeIsTheFormula) {
  const Values x = normal_values(25, 1), y = normal_values(25, 2), z = normal_values(25, 3);
  const double xy = *pearson(x, y).effect, xz = *pearson(x, z).effect, yz = *pearson(y, z).effect;
  expect_near(partial_correlation(x, y, z).effect, (xy - xz * yz) / std::sqrt((1 - xz * xz) * (1 - yz * yz)), 1e-13);
}

TEST(Correlation, PartialDegenerateInputIsAReason) {
  const Values x = normal_values(10, 1), y = normal_values(10, 2), z = normal_values(10, 3);
  expect_nothing(partial_correlation(Values{1, 2, 3}, Values{1, 3, 2}, Values{3, 1, 2}),
                 "fewer than 4 rows of finite values");
  const std::string dependent = "the controls are constant or depend on each other";
  expect_nothing(partial_correlation(x, y, Values(10, 0.1)), dependent);
  const Values twice = mapped(z, 2.0, 5.0);
  const std::span<const double> both[] = {z, twice};
  expect_nothing(partial_correlation(x, y, both), dependent);
  expect_nothing(partial_correlation(mapped(z, 3.0, 1.0), y, z), "x is explained by the controls");
  expect_nothing(partial_correlation(x, mapped(z, -1.0, 0.1), z), "y is explained by the controls");
  expect_nothing(partial_correlation(Values(10, 1.0), y, z), "x is constant");
  const std::span<const double> many[] = {x, y, z, x, y, z, x, y};
  expect_nothing(partial_correlation(x, y, many), "fewer than 11 rows of finite values");
}

TEST(Correlation, MinimumDetectableEffectIsFoundInFourOfFiveCases) {
  const double r = *pearson(normal_values(50, 1), normal_values(50, 2)).min_detectable_effect;
  EXPECT_NEAR(r, 0.38733, 1e-5);
  int found = 0;
  for (std::uint64_t seed = 10; seed < 1010; ++seed) {
    const Values x = normal_values(50, seed);
    Values y = normal_values(50, seed + 5000);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = r * x[i] + std::sqrt(1 - r * r) * y[i];
    found += *pearson(x, y).p < 0.05;
  }
  EXPECT_NEAR(found, 800, 40);
}

}  // namespace
}  // namespace kvdiv
