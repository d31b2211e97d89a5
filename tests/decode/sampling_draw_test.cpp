// The draw itself: its ends, its distribution, its speed.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "sampling_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;

// ---- the draw (B47) ------------------------------------------------------------------------------------------------

TEST(Draw, NeverTakesATokenWithoutWeight) {
  const std::vector<double> one{-kInf, -kInf, 0.0, -kInf}, underflow{-800.0, -2000.0, 0.0, -5000.0};
  for (double u : {0.0, 0.25, 0.5, kAlmostOne}) {
    EXPECT_EQ(choose_token(one, top_p(1.0), u), 2);
    EXPECT_EQ(choose_token(one, top_k(4), u), 2);
    EXPECT_EQ(choose_token(underflow, top_p(1.0), u), 2);
  }
}

TEST(Draw, TheEndsOfTheUniformGiveTheFirstAndTheLastSurvivor) {
  for (std::size_t n : {2u, 3u, 7u, 10u, 1000u, 256000u}) {
    auto logits = random_logits(n, 1e-6);
    logits.insert(logits.begin(), -kInf);
    logits.push_back(-kInf);
    EXPECT_EQ(choose_token(logits, top_p(1.0), 0.0), 1) << n;
    EXPECT_EQ(choose_token(logits, top_p(1.0), kAlmostOne), static_cast<TokenId>(n)) << n;
  }
}

TEST(Draw, CutsTheUnitIntervalInIdOrder) {
  const std::vector<double> logits = logs({.125, .5, .25, .125});
  const auto at = [&](double u) { return choose_token(logits, top_p(1.0), u); };
  EXPECT_EQ(at(0.0), 0);
  EXPECT_EQ(at(0.12), 0);
  EXPECT_EQ(at(0.13), 1);
  EXPECT_EQ(at(0.62), 1);
  EXPECT_EQ(at(0.63), 2);
  EXPECT_EQ(at(0.87), 2);
  EXPECT_EQ(at(0.88), 3);
}

TEST(Draw, RenormalisesOverTheSurvivors) {
  const std::vector<double> logits = logs({.1, .4, .1, .4});
  EXPECT_EQ(choose_token(logits, top_k(2), 0.49), 1);
  EXPECT_EQ(choose_token(logits, top_k(2), 0.51), 3);
  EXPECT_EQ(choose_token(logits, top_p(.8), 0.49), 1);
  EXPECT_EQ(choose_token(logits, top_p(.8), 0.51), 3);
}

TEST(Draw, ALargeFlatVocabularyIsDrawnWithoutBias) {
  const std::vector<double> logits(256000, 0.0);
  Sampler sampler(top_p(1.0));
  for (int i = 0; i < 64; ++i) {
    const double u = uniform_for(3, 0, static_cast<std::uint64_t>(i));
    EXPECT_EQ(sampler.choose(logits, u), static_cast<TokenId>(u * 256000)) << u;
  }
}

TEST(Draw, AnotherConstantInTheLogitsChangesNothing) {
  const auto logits = random_logits(300, 6.0);
  auto shifted = logits;
  for (double& l : shifted) l += 64.0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const double u = uniform_for(4, 1, i);
    EXPECT_EQ(choose_token(logits, top_p(.9, .7), u), choose_token(shifted, top_p(.9, .7), u));
  }
}

TEST(Sampler, ScratchDoesNotLeakFromOneChoiceIntoTheNext) {
  Sampler sampler(top_k(3, 0.7));
  for (std::size_t n : {2000u, 5u, 300u, 1u, 2000u}) {
    const auto logits = random_logits(n, 3.0);
    for (double u : {0.0, 0.37, kAlmostOne})
      EXPECT_EQ(sampler.choose(logits, u), choose_token(logits, top_k(3, 0.7), u));
  }
}

/// Pearson's statistic of n draws against probabilities.
double chi_squared(const std::vector<double>& logits, const SamplingParams& params,
                   const std::vector<double>& expected) {
  constexpr int kDraws = 40000;
  std::vector<double> count(expected.size());
  Sampler sampler(params);
  for (int i = 0; i < kDraws; ++i)
    count[static_cast<std::size_t>(sampler.choose(
        logits, uniform_for(42, static_cast<std::uint64_t>(i / 100), static_cast<std::uint64_t>(i % 100))))] += 1;
  double sum = 0.0;
  for (std::size_t t = 0; t < expected.size(); ++t) {
    if (expected[t] == 0.0) {
      EXPECT_EQ(count[t], 0.0) << t;
    } else {
      sum += (count[t] - kDraws * expected[t]) * (count[t] - kDraws * expected[t]) / (kDraws * expected[t]);
    }
  }
  return sum;
}

// Two-sided: 0.1 % and 99.9 % quantiles of χ² (5 degrees of freedom: 0.210, 20.52; 2: 0.0020, 13.82; 19: 5.41, 43.82).
TEST(Draw, HasTheRightDistribution) {
  const std::vector<double> p{.3, .05, .2, .1, .25, .1};
  const double full = chi_squared(logs(p), top_p(1.0), p);
  EXPECT_GT(full, 0.210);
  EXPECT_LT(full, 20.52);

  const double k3 = chi_squared(logs(p), top_k(3), {.4, 0, .2 / .75, 0, .25 / .75, 0});
  EXPECT_GT(k3, 0.0020);
  EXPECT_LT(k3, 13.82);

  const double p7 = chi_squared(logs(p), top_p(.7), {.4, 0, .2 / .75, 0, .25 / .75, 0});
  EXPECT_GT(p7, 0.0020);
  EXPECT_LT(p7, 13.82);
}

TEST(Draw, HasTheRightDistributionAtAnotherTemperature) {
  std::vector<double> logits(20), expected(20);
  double total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 0.1 * static_cast<double>(i % 7);
    total += expected[i] = std::exp(logits[i] / 0.5);
  }
  for (double& e : expected) e /= total;
  const double chi2 = chi_squared(logits, top_k(20, 0.5), expected);
  EXPECT_GT(chi2, 5.41);
  EXPECT_LT(chi2, 43.82);
}

double cpu_ms() { return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Not a benchmark: a bound on processor time far above the milliseconds it takes, and far below anything quadratic.
TEST(Sampler, ALargeVocabularyTakesMilliseconds) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers make it a test of the sanitizers";
#endif
  const auto logits = random_logits(256000, 12.0);
  for (const auto& params : {top_k(50, 0.7), top_p(.95, 0.7), top_p(.95, 100.0), top_k(200000, 0.7)}) {
    Sampler sampler(params);
    sampler.choose(logits, 0.5);
    const double start = cpu_ms();
    for (int i = 0; i < 5; ++i) sampler.choose(logits, uniform_for(0, 0, static_cast<std::uint64_t>(i)));
    EXPECT_LT((cpu_ms() - start) / 5, 500.0);
  }
}

}  // namespace
}  // namespace kvdiv
