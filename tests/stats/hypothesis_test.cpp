#include "kvdiv/stats/hypothesis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvdiv {
namespace {

using P = std::vector<std::optional<double>>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct McNemarCase {
  std::int64_t b, c;
  double exact, mid_p;
  std::optional<double> chi2, chi2_p;
};

TEST(Hypothesis, McNemarAgreesWithScipy) {
  const McNemarCase cases[] = {
      {0, 0, 1.0, 1.0, std::nullopt, std::nullopt},
      {1, 0, 1.0, 0.5, 0.0, 1.0},
      {5, 1, 0.21875, 0.125, 1.5, 0.22067136191984324},
      {10, 2, 0.03857421875, 0.0224609375, 4.083333333333333, 0.04330814281079206},
      {12, 3, 0.03515625, 0.021270751953125, 4.266666666666667, 0.03886710381241731},
      {25, 25, 1.0, 0.9438624136703915, 0.0, 1.0},
      {3, 17, 0.0025768280029296875, 0.0014896392822265625, 8.45, 0.0036504344044418794},
      {1000, 900, 0.023108845108901193, 0.021791499253713553, 5.158421052631579, 0.023133919510755163},
      {40, 0, 1.8189894035458565e-12, 9.094947017729282e-13, 38.025, 6.984393061522137e-10},
  };
  for (const auto& k : cases) {
    const McNemarResult m = mcnemar(k.b, k.c, 2000);
    EXPECT_EQ(m.b, k.b);
    EXPECT_EQ(m.c, k.c);
    EXPECT_NEAR(*m.exact.p, k.exact, 1e-11 * k.exact) << k.b << " " << k.c;
    EXPECT_NEAR(*m.mid_p.p, k.mid_p, 1e-11 * k.mid_p) << k.b << " " << k.c;
    EXPECT_EQ(m.chi2.p.has_value(), k.chi2_p.has_value());
    if (!k.chi2_p) continue;
    EXPECT_DOUBLE_EQ(*m.chi2.statistic, *k.chi2);
    EXPECT_NEAR(*m.chi2.p, *k.chi2_p, 1e-11 * *k.chi2_p);
    EXPECT_EQ(m.chi2.df, 1.0);
  }
}

TEST(Hypothesis, McNemarSaysWhichVariantAndHowLarge) {
  const McNemarResult m = mcnemar(3, 7, 40);
  for (const auto& [test, variant] :
       {std::pair{&m.exact, "exact"}, {&m.mid_p, "mid-p"}, {&m.chi2, "chi2-continuity"}}) {
    EXPECT_EQ(test->test, "mcnemar");
    EXPECT_EQ(test->variant, variant);
    EXPECT_EQ(test->n, 40);
    EXPECT_DOUBLE_EQ(*test->effect, -0.1);
    EXPECT_FALSE(test->reason);
    EXPECT_FALSE(test->p_adjusted);
  }
  EXPECT_EQ(m.exact.statistic, 3.0);
  EXPECT_EQ(to_json_value(m.exact).dump(),
            R"({"test":"mcnemar","variant":"exact","statistic":3.0,"df":null,"p":0.34375,"p_adjusted":null,)"
            R"("adjustment":null,"family":null,"n":40,"effect":-0.1,"ci_low":null,"ci_high":null,)"
            R"("min_detectable_effect":0.2214847587074149,"reason":null})");
  EXPECT_EQ(to_json_value(m)["b"], 3);
}

TEST(Hypothesis, McNemarDegenerateInputIsNullWithAReason) {
  const McNemarResult no_discordant = mcnemar(0, 0, 12);
  EXPECT_EQ(no_discordant.exact.p, 1.0);
  EXPECT_EQ(no_discordant.mid_p.p, 1.0);
  EXPECT_EQ(no_discordant.exact.effect, 0.0);
  EXPECT_FALSE(no_discordant.chi2.p);
  EXPECT_EQ(no_discordant.chi2.reason, "no discordant pairs");
  const McNemarResult no_pairs = mcnemar(0, 0, 0);
  EXPECT_FALSE(no_pairs.exact.effect);
  EXPECT_EQ(no_pairs.exact.reason, "no pairs");
  for (const auto& impossible : {mcnemar(-1, 2, 5), mcnemar(4, 4, 7)}) {
    EXPECT_FALSE(impossible.exact.p);
    EXPECT_FALSE(impossible.chi2.statistic);
    EXPECT_EQ(impossible.mid_p.reason, "impossible counts");
  }
}

TEST(Hypothesis, McNemarIsSymmetricAndItsFormsAreOrdered) {
  for (std::int64_t b = 0; b < 30; ++b)
    for (std::int64_t c = 0; c < 30; ++c) {
      const McNemarResult m = mcnemar(b, c, 100), swapped = mcnemar(c, b, 100);
      EXPECT_EQ(m.exact.p, swapped.exact.p);
      EXPECT_LE(*m.mid_p.p, *m.exact.p);
      EXPECT_GT(*m.mid_p.p, 0.0);
      EXPECT_LE(*m.exact.p, 1.0);
    }
}

void expect_p(const P& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(*found[i], expected[i], 1e-8) << i;
}

TEST(Hypothesis, BenjaminiHochbergReportedCases) {
  expect_p(adjust(P{.01, .04, .03, .005}, Adjustment::benjamini_hochberg).p, {.02, .04, .04, .02});
  expect_p(adjust(P{.05, .05, .05, .05, .05}, Adjustment::benjamini_hochberg).p, {.05, .05, .05, .05, .05});
  const P twenty{0.69646919, 0.28613933, 0.22685145, 0.55131477, 0.71946897, 0.42310646, 0.9807642,
                 0.68482974, 0.4809319,  0.39211752, 0.34317802, 0.72904971, 0.43857224, 0.0596779,
                 0.39804426, 0.73799541, 0.18249173, 0.17545176, 0.53155137, 0.53182759};
  std::vector<double> expected(20, 0.77683727);
  expected[6] = 0.9807642;
  const AdjustedP a = adjust(twenty, Adjustment::benjamini_hochberg);
  EXPECT_EQ(a.m, 20);
  expect_p(a.p, expected);
}

TEST(Hypothesis, BonferroniAndHolm) {
  expect_p(adjust(P{.01, .04, .03, .005}, Adjustment::bonferroni).p, {.04, .16, .12, .02});
  expect_p(adjust(P{.01, .04, .03, .005}, Adjustment::holm).p, {.03, .06, .06, .02});
  expect_p(adjust(P{.5, .9}, Adjustment::bonferroni).p, {1.0, 1.0});
  expect_p(adjust(P{.5, .9}, Adjustment::holm).p, {1.0, 1.0});
}

TEST(Hypothesis, WhatIsNoPValueIsLeftOutAndMIsStated) {
  for (const auto method : {Adjustment::bonferroni, Adjustment::holm, Adjustment::benjamini_hochberg}) {
    const AdjustedP with = adjust(P{.01, kNan, .04, std::nullopt, 1.5, -.1}, method),
                    without = adjust(P{.01, .04}, method);
    EXPECT_EQ(with.m, 2);
    EXPECT_EQ(with.p[0], without.p[0]);
    EXPECT_EQ(with.p[2], without.p[1]);
    for (const std::size_t i : {1u, 3u, 4u, 5u}) EXPECT_FALSE(with.p[i]);
    EXPECT_EQ(adjust(P{}, method).m, 0);
    EXPECT_EQ(adjust(P{std::nullopt}, method).m, 0);
    EXPECT_EQ(adjust(P{.03}, method).p[0], .03);
  }
}

TEST(Hypothesis, AdjustmentsKeepOrderAndAreOrderedAmongThemselves) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(0.0, 0.3);
  for (int trial = 0; trial < 50; ++trial) {
    P p(1 + trial % 12);
    for (auto& x : p) x = uniform(random);
    const auto bonferroni = adjust(p, Adjustment::bonferroni).p, holm = adjust(p, Adjustment::holm).p,
               bh = adjust(p, Adjustment::benjamini_hochberg).p;
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_LE(*holm[i], *bonferroni[i]);
      EXPECT_LE(*bh[i], *holm[i] + 1e-15);
      EXPECT_GE(*bh[i], *p[i] - 1e-15);
      for (std::size_t j = 0; j < p.size(); ++j)
        if (*p[i] < *p[j]) {
          EXPECT_LE(*bh[i], *bh[j]);
        }
    }
  }
}

TEST(Hypothesis, AFamilyIsNamedOnEveryTest) {
  TestResult a = mcnemar(10, 2, 50).exact, b = mcnemar(0, 0, 50).chi2;
  TestResult* const tests[] = {&a, &b};
  adjust_family(tests, Adjustment::benjamini_hochberg, "conditions");
  EXPECT_EQ(a.p_adjusted, a.p);
  EXPECT_FALSE(b.p_adjusted);
  EXPECT_EQ(a.adjustment, "benjamini-hochberg (m = 1)");
  EXPECT_EQ(b.adjustment, "benjamini-hochberg (m = 1)");
  EXPECT_EQ(b.family, "conditions");
}

}  // namespace
}  // namespace kvdiv
