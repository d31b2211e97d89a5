#include "kvdiv/stats/states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvdiv {
namespace {

// Half-precision squares overflow or vanish at these sizes: here they are FP64.
TEST(States, LargeAndSmallVectorsHaveTheirNorms) {
  for (const double size : {1000.0, 1e-4, 1e200, 1e-200}) {
    const std::vector<double> a(512, size), b(512, 2.0 * size);
    const StateDistance d = compare_states(a, b);
    EXPECT_NEAR(d.l2 / (size * std::sqrt(512.0)), 1.0, 1e-14);
    EXPECT_NEAR(*d.rel_l2, 0.5, 1e-14);
    EXPECT_NEAR(*d.cosine, 1.0, 1e-14);
    EXPECT_LE(*d.cosine, 1.0);
    EXPECT_DOUBLE_EQ(d.max_abs, size);
  }
}

TEST(States, IdenticalVectorsHaveCosineExactlyOne) {
  std::vector<double> a(333);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<double>(i)) * 1e-3;
  const StateDistance d = compare_states(a, a);
  EXPECT_EQ(d.cosine, 1.0);
  EXPECT_EQ(d.l2, 0.0);
  EXPECT_EQ(d.rel_l2, 0.0);
}

TEST(States, ZeroVectorsHaveNoCosine) {
  const std::vector<double> zero(4, 0.0), one{1, 0, 0, 0};
  EXPECT_FALSE(compare_states(zero, zero).cosine);
  EXPECT_FALSE(compare_states(zero, zero).rel_l2);
  EXPECT_FALSE(compare_states(one, zero).cosine);
  EXPECT_FALSE(compare_states(one, zero).rel_l2);
  EXPECT_EQ(compare_states(zero, one).rel_l2, 1.0);
  EXPECT_FALSE(compare_states(zero, one).cosine);
}

TEST(States, OppositeAndOrthogonal) {
  const std::vector<double> x{1, 2}, minus{-1, -2}, across{2, -1};
  EXPECT_NEAR(*compare_states(x, minus).cosine, -1.0, 1e-15);
  EXPECT_GE(*compare_states(x, minus).cosine, -1.0);
  EXPECT_NEAR(*compare_states(x, across).cosine, 0.0, 1e-15);
}

TEST(States, NanSpreads) {
  const std::vector<double> a{1, NAN, 3}, b{1, 2, 3};
  EXPECT_TRUE(std::isnan(compare_states(a, b).l2));
  EXPECT_TRUE(std::isnan(compare_states(a, b).max_abs));
}

// A massive dimension hides a difference in the others, or makes all of it.
TEST(States, TrimmedLeavesOutTheLargestOfTheSecond) {
  std::vector<double> b(10, 1.0), a = b;
  b[3] = 1e4, b[5] = -2e4, b[7] = 3e4;
  a[3] = 1e4 + 5, a[5] = -2e4, a[7] = 3e4;
  EXPECT_DOUBLE_EQ(compare_states(a, b).l2, 5.0);
  EXPECT_EQ(compare_states_trimmed(a, b, 3).l2, 0.0);
  a[0] = 2.0;
  EXPECT_LT(*compare_states(a, b).rel_l2, 1e-3);
  EXPECT_NEAR(*compare_states_trimmed(a, b, 3).rel_l2, 1.0 / std::sqrt(7.0), 1e-15);
  EXPECT_EQ(compare_states_trimmed(a, b, 20).l2, 0.0) << "nothing is left";
}

}  // namespace
}  // namespace kvdiv
