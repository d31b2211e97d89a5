// The effect that 80 % power could have seen, beside p-values that are not significant.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvdiv/stats/hypothesis.h"
#include "kvdiv/stats/two_sample.h"

namespace kvdiv {
namespace {

constexpr double kSum = 1.959963984540054 + 0.8416212335729143;  // z of 0.975 and of 0.8, from SciPy's norm.ppf

TEST(Detectable, McNemar) {
  const McNemarResult m = mcnemar(10, 6, 200);
  EXPECT_NEAR(*m.exact.min_detectable_effect, kSum * 4.0 / 200.0, 1e-12);
  EXPECT_EQ(m.exact.min_detectable_effect, m.chi2.min_detectable_effect);
  EXPECT_FALSE(mcnemar(0, 0, 200).exact.min_detectable_effect) << "no discordant pair says nothing of their rate";
  EXPECT_FALSE(mcnemar(0, 0, 0).exact.min_detectable_effect);
}

TEST(Detectable, MannWhitney) {
  std::vector<double> x, y;
  for (int i = 0; i < 20; ++i) x.push_back(i), y.push_back(i + 0.5);
  const double sigma = std::sqrt(20.0 * 20.0 * 41.0 / 12.0);
  EXPECT_NEAR(*mann_whitney(x, y).min_detectable_effect, 2.0 / 400.0 * kSum * sigma, 1e-12);
  x.resize(2), y.resize(2);
  EXPECT_FALSE(mann_whitney(x, y).min_detectable_effect) << "two against two see nothing";
}

}  // namespace
}  // namespace kvdiv
