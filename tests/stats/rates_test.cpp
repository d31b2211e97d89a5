// Fisher's exact test against exact fractions.
#include <gtest/gtest.h>

#include "kvdiv/stats/rates.h"

namespace kvdiv {
namespace {

struct Table {
  std::int64_t x, n_x, y, n_y;
  double p;  ///< Σ of C(n_x, k) C(n_y, x + y − k)/C(n_x + n_y, x + y) in whole numbers, then rounded once
};

TEST(FisherExact, AgreesWithExactFractions) {
  for (const Table& t : {Table{0, 512, 6, 512, 0.030793134775760053}, Table{0, 512, 5, 512, 0.061889949381655804}, Table{8, 16, 16, 16, 0.002447163515016685},
                         Table{3, 10, 3, 10, 1.0}, Table{1, 9, 11, 15, 0.00942253331538565}, Table{0, 16, 16, 16, 3.3273419550419868e-09},
                         Table{10, 1000, 30, 1200, 0.009744446609804638}, Table{0, 20000, 300, 20000, 3.172490942327186e-91}, Table{0, 5, 0, 7, 1.0}, Table{5, 5, 7, 7, 1.0}}) {
    const TestResult forward = fisher_exact(t.x, t.n_x, t.y, t.n_y), backward = fisher_exact(t.y, t.n_y, t.x, t.n_x);
    ASSERT_TRUE(forward.p && backward.p);
    EXPECT_NEAR(*forward.p / t.p, 1.0, 1e-11) << t.x << "/" << t.n_x;
    EXPECT_NEAR(*backward.p / t.p, 1.0, 1e-11) << "the samples may be exchanged";
    EXPECT_EQ(forward.n, t.n_x + t.n_y);
    EXPECT_DOUBLE_EQ(*forward.effect, static_cast<double>(t.x) / static_cast<double>(t.n_x) - static_cast<double>(t.y) / static_cast<double>(t.n_y));
  }
}

TEST(FisherExact, DegenerateInputGivesNullAndAReason) {
  for (const Table& t : {Table{-1, 5, 0, 5, 0}, Table{6, 5, 0, 5, 0}, Table{0, 5, 6, 5, 0}, Table{0, -1, 0, 5, 0}, Table{0, std::int64_t{1} << 40, 0, 5, 0},
                         Table{0, std::numeric_limits<std::int64_t>::max(), 0, std::numeric_limits<std::int64_t>::max(), 0}}) {
    const TestResult r = fisher_exact(t.x, t.n_x, t.y, t.n_y);
    EXPECT_FALSE(r.p || r.effect);
    EXPECT_EQ(r.reason, "impossible counts");
  }
  EXPECT_EQ(fisher_exact(0, 0, 1, 5).reason, "no trials");
  EXPECT_EQ(fisher_exact(0, 5, 0, 0).reason, "no trials");
}

/// The largest samples that are accepted take no longer than a few million terms, and a hopeless p is 0, not NaN.
TEST(FisherExact, LargeCounts) {
  const std::int64_t half = std::int64_t{1} << 30;
  EXPECT_EQ(fisher_exact(half, half, 0, half).p, 0.0);
  EXPECT_NEAR(*fisher_exact(half / 2, half, half / 2, half).p, 1.0, 1e-9);
  EXPECT_LT(*fisher_exact(half / 2 + 100000, half, half / 2, half).p, 1e-4);
  EXPECT_GT(*fisher_exact(half / 2 + 10000, half, half / 2, half).p, 0.5);
}

}  // namespace
}  // namespace kvdiv
