#include "kvdiv/stats/two_sample.h"

#include <gtest/gtest.h>

#include "stats/stats_checks.h"

namespace kvdiv {
namespace {

using Function = TestResult (*)(const Values&, const Values&);
TestResult run_welch(const Values& x, const Values& y) { return welch_t(x, y); }
TestResult run_tost(const Values& x, const Values& y) { return equivalence_welch(x, y, 0.5); }
TestResult run_ranks(const Values& x, const Values& y) { return mann_whitney(x, y); }
TestResult run_exact(const Values& x, const Values& y) { return mann_whitney(x, y, RankMethod::exact); }
TestResult run_asymptotic(const Values& x, const Values& y) { return mann_whitney(x, y, RankMethod::asymptotic); }
const Function kTests[] = {run_welch, run_tost, run_ranks, run_exact, run_asymptotic};

/// So many ones, twos, threes, …
Values repeat(const std::vector<int>& counts) {
  Values v;
  for (std::size_t i = 0; i < counts.size(); ++i) v.insert(v.end(), static_cast<std::size_t>(counts[i]), 1.0 + i);
  return v;
}

void expect_no_p(const TestResult& t, std::string_view reason) {
  EXPECT_FALSE(t.p);
  EXPECT_EQ(t.reason, reason) << t.test;
  EXPECT_FALSE(t.ci_low);
  EXPECT_FALSE(t.ci_high);
  EXPECT_FALSE(t.min_detectable_effect);
  expect_finite(t);
}

TEST(TwoSample, MannWhitneyReportedCases) {
  const Values a = repeat({163, 81, 40, 6, 2}), b = repeat({1007, 362, 99, 27, 13});
  const TestResult ab = mann_whitney(a, b), ba = mann_whitney(b, a);
  EXPECT_EQ(ab.statistic, 246930.5);
  EXPECT_EQ(ba.statistic, 193405.5);
  EXPECT_NEAR(*ab.p, 9.3493e-5, 1e-9);
  EXPECT_EQ(ab.p, ba.p);
  EXPECT_EQ(ab.variant, "asymptotic, tie-corrected, continuity-corrected");

  const Values x{0, 1, 2, 3, 9}, y{4, 5, 6, 7, 8, 10, 11};
  const TestResult automatic = mann_whitney(x, y), asymptotic = mann_whitney(x, y, RankMethod::asymptotic);
  EXPECT_EQ(automatic.statistic, 5.0);
  EXPECT_EQ(automatic.variant, "exact");
  EXPECT_NEAR(*automatic.p, 0.0479798, 1e-7);
  EXPECT_NEAR(*asymptotic.p, 0.0513199, 1e-7);
  EXPECT_EQ(asymptotic.statistic, 5.0);
  EXPECT_EQ(asymptotic.n, 12);

  for (const auto method : {RankMethod::automatic, RankMethod::exact, RankMethod::asymptotic}) {
    const TestResult equal = mann_whitney(Values(5, 1.0), Values(9, 1.0), method);
    expect_no_p(equal, "all values are equal");
    EXPECT_EQ(equal.effect, 0.0);
    EXPECT_EQ(equal.statistic, 22.5);
  }
}

TEST(TwoSample, WhenMannWhitneyIsExact) {
  const auto variant = [](std::size_t n_x, std::size_t n_y) {
    return mann_whitney(normal_values(n_x, 1), normal_values(n_y, 2)).variant.substr(0, 5);
  };
  EXPECT_EQ(variant(8, 8), "exact");
  EXPECT_EQ(variant(8, 1250), "exact");
  EXPECT_EQ(variant(1250, 8), "exact");
  EXPECT_EQ(variant(8, 1251), "asymp");
  EXPECT_EQ(variant(9, 9), "asymp");
  EXPECT_EQ(mann_whitney(Values{1, 2, 2}, Values{3, 4}).variant.substr(0, 5), "asymp");
  expect_no_p(mann_whitney(Values{1, 2, 2}, Values{3, 4}, RankMethod::exact),
              "ties: the exact distribution is that of distinct values");
  expect_no_p(mann_whitney(normal_values(101, 1), normal_values(100, 2), RankMethod::exact),
              "too many values for the exact distribution");
}

TEST(TwoSample, ExactDistributionIsTheOneByHand) {
  // Two of x below three of y: 1 of the 10 orders, twice; all others by hand as well.
  EXPECT_DOUBLE_EQ(*mann_whitney(Values{1, 2}, Values{3, 4, 5}).p, 0.2);
  EXPECT_DOUBLE_EQ(*mann_whitney(Values{1, 3}, Values{2, 4, 5}).p, 0.4);
  EXPECT_DOUBLE_EQ(*mann_whitney(Values{1, 4}, Values{2, 3, 5}).p, 0.8);
  EXPECT_EQ(mann_whitney(Values{1, 5}, Values{2, 3, 4}).p, 1.0);
  EXPECT_EQ(mann_whitney(Values{1}, Values{2}).p, 1.0);
  // 100 and 100 values apart: 2 of C(200, 100) orders.
  Values low(100), high(100);
  for (int i = 0; i < 100; ++i) {
    low[static_cast<std::size_t>(i)] = i;
    high[static_cast<std::size_t>(i)] = 1000 + i;
  }
  EXPECT_NEAR(*mann_whitney(low, high, RankMethod::exact).p, 2.0 / 9.0548514656103281e58, 1e-72);
}

TEST(TwoSample, RankBiserialEffectHasTheSignOfTheDifference) {
  EXPECT_EQ(mann_whitney(Values{1, 2}, Values{3, 4}).effect, -1.0);
  EXPECT_EQ(mann_whitney(Values{3, 4}, Values{1, 2}).effect, 1.0);
  EXPECT_EQ(mann_whitney(Values{1, 4}, Values{2, 3}).effect, 0.0);
}

TEST(TwoSample, TooFewValuesAreAReason) {
  for (const Function test : kTests)
    for (const auto& [x, y] : {std::pair<Values, Values>{{}, {}}, {{}, {1, 2}}, {{1, 2}, {}}, {{kNan, kInf}, {1, 2}}}) {
      const TestResult t = test(x, y);
      EXPECT_FALSE(t.p);
      EXPECT_FALSE(t.effect);
      EXPECT_FALSE(t.statistic);
      EXPECT_TRUE(t.reason);
      expect_finite(t);
    }
  expect_no_p(welch_t(Values{1}, Values{2, 3}), "x has fewer than two finite values");
  expect_no_p(welch_t(Values{1, 2}, Values{2}), "y has fewer than two finite values");
  EXPECT_EQ(welch_t(Values{1}, Values{2, 3}).effect, -1.5);
  EXPECT_EQ(welch_t(Values{1}, Values{2, 3}).n, 3);
  expect_no_p(mann_whitney(Values{}, Values{1}), "x has no finite values");
  expect_no_p(mann_whitney(Values{1}, Values{}), "y has no finite values");
}

TEST(TwoSample, NoSpreadIsAReason) {
  for (const double x : {0.0, 0.1, 1e8 / 3, -7e-300}) {
    const TestResult t = welch_t(Values(3, x), Values(4, x));
    expect_no_p(t, "no spread: x and y are constant");
    EXPECT_EQ(t.effect, 0.0);
    EXPECT_FALSE(t.statistic);
    expect_no_p(equivalence_welch(Values(3, x), Values(4, x), 1.0), "no spread: x and y are constant");
    expect_no_p(equivalence_mean(Values(3, x), 1.0), "no spread: all values are equal");
  }
  EXPECT_TRUE(welch_t(Values(3, 1.0), Values{1, 2}).p);  // one of the two is enough
  expect_no_p(equivalence_mean(Values{1}, 1.0), "fewer than two finite values");
  expect_no_p(equivalence_mean(Values{}, 1.0), "fewer than two finite values");
}

TEST(TwoSample, NonFiniteValuesAreLeftOut) {
  const Values x = normal_values(6, 1), y = normal_values(7, 2);
  Values dirty_x = x, dirty_y = y;
  dirty_x.insert(dirty_x.begin() + 2, kNan);
  dirty_y.insert(dirty_y.end(), {kInf, -kInf});
  for (const Function test : kTests) EXPECT_EQ(to_json_value(test(dirty_x, dirty_y)), to_json_value(test(x, y)));
}

TEST(TwoSample, SwappingSamplesChangesSignsOnly) {
  const Values x = normal_values(12, 3), y = normal_values(9, 4, 0.5);
  for (const Function test : kTests) {
    const TestResult a = test(x, y), b = test(y, x);
    expect_near(a.p, b.p, 1e-14);
    EXPECT_NEAR(*a.effect, -*b.effect, 1e-15);
    EXPECT_EQ(a.df.has_value(), b.df.has_value());
    EXPECT_EQ(a.min_detectable_effect.has_value(), b.min_detectable_effect.has_value());
    if (a.ci_low) {
      EXPECT_NEAR(*a.ci_low, -*b.ci_high, 1e-14);
    }
  }
  EXPECT_NEAR(*mann_whitney(x, y).statistic + *mann_whitney(y, x).statistic, 108.0, 0.0);
}

TEST(TwoSample, PDoesNotDependOnUnitAndOrigin) {
  const Values x = normal_values(11, 5), y = normal_values(14, 6, 1.0);
  for (const double factor : {1e-300, 1e-170, 1e-8, 3.0, 1e6, 1e170, 1e300}) {
    for (const double shift : {0.0, -2.0 * factor}) {
      const Values u = mapped(x, factor, shift), v = mapped(y, factor, shift);
      for (const Function test : {run_welch, run_ranks, run_asymptotic})
        expect_near(test(u, v).p, test(x, y).p, shift == 0.0 ? 1e-12 : 1e-11);
      expect_near(equivalence_welch(u, v, 2.0 * factor).p, equivalence_welch(x, y, 2.0).p, 1e-10);
      expect_near(welch_t(u, v).effect, factor * *welch_t(x, y).effect, 1e-12);
      expect_near(welch_t(u, v).min_detectable_effect, factor * *welch_t(x, y).min_detectable_effect, 1e-12);
    }
  }
  expect_near(welch_t(mapped(x, -1, 0), mapped(y, -1, 0)).p, welch_t(x, y).p, 1e-15);
}

TEST(TwoSample, WhatOverflowsIsNullWithAReason) {
  const TestResult t = welch_t(Values{1e308, 1.7e308}, Values{-1e308, -1.7e308});
  EXPECT_FALSE(t.effect);
  EXPECT_TRUE(t.reason);
  expect_finite(t);
  expect_finite(welch_t(Values{1e308, 1.7e308}, Values{1e-308, 5e-324}));
  expect_finite(welch_t(Values{5e-324, 0}, Values{0, 5e-324, 1e-323}));
  expect_finite(equivalence_mean(Values{5e-324, 0, 0}, 1e308));
  EXPECT_EQ(equivalence_mean(Values{5e-324, 0, 0}, 1e308).p, 0.0);
}

TEST(TwoSample, EquivalenceIsTheIntervalWithinTheMargin) {
  const Values x = normal_values(40, 7), y = normal_values(35, 8);
  const TestResult t = equivalence_welch(x, y, 1.0);
  const double reach = std::max(std::abs(*t.ci_low), std::abs(*t.ci_high));
  EXPECT_NEAR(*equivalence_welch(x, y, reach).p, 0.05, 1e-12);
  EXPECT_LT(*equivalence_welch(x, y, 1.01 * reach).p, 0.05);
  EXPECT_GT(*equivalence_welch(x, y, 0.99 * reach).p, 0.05);
  EXPECT_FALSE(t.min_detectable_effect);
  const TestResult mean = equivalence_mean(x, 1.0);
  const double mean_reach = std::max(std::abs(*mean.ci_low), std::abs(*mean.ci_high));
  EXPECT_NEAR(*equivalence_mean(x, mean_reach).p, 0.05, 1e-12);
  for (const double margin : {0.0, -1.0, kNan, kInf}) {
    expect_no_p(equivalence_welch(x, y, margin), "the margin is not positive and finite");
    expect_no_p(equivalence_mean(x, margin), "the margin is not positive and finite");
    EXPECT_TRUE(equivalence_mean(x, margin).effect);
  }
}

TEST(TwoSample, MinimumDetectableEffectIsFoundInFourOfFiveCases) {
  int found = 0, found_without = 0;
  const double effect =
      *welch_t(normal_values(5000, 1), normal_values(5000, 2)).min_detectable_effect * 10.0;  // n = 50
  for (std::uint64_t seed = 10; seed < 1010; ++seed) {
    const Values y = normal_values(50, seed);
    found += *welch_t(normal_values(50, seed + 5000, effect), y).p < 0.05;
    found_without += *welch_t(normal_values(50, seed + 5000), y).p < 0.05;
  }
  EXPECT_NEAR(found, 800, 40);
  EXPECT_NEAR(found_without, 50, 25);
}

TEST(TwoSample, ReadsBackWhatItWrites) {
  const TestResult t = welch_t(normal_values(5, 1), normal_values(6, 2));
  TestResult read;
  from_json_value(Json::parse(to_json_value(t).dump()), read, "test");
  EXPECT_EQ(to_json_value(read).dump(), to_json_value(t).dump());
}

}  // namespace
}  // namespace kvdiv
