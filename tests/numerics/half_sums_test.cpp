#include "kvdiv/numerics/half_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"

namespace kvdiv {
namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b, SumOrder order, Accumulator accumulator = Accumulator::float16) {
  return ordered_dot(a, b, order, accumulator);
}

/// Sums of a[i] · 1.
double sum(const Values& a, SumOrder order, Accumulator accumulator = Accumulator::float16) {
  return dot(a, Values(a.size(), 1.0), order, accumulator);
}

Values normal_halves(std::size_t n, std::uint32_t trial) {
  std::vector<float> drawn(n);
  fill_standard_normals(drawn, {77, 0, trial});
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = round_to_half(static_cast<double>(drawn[i]));
  return out;
}

TEST(HalfSums, NamesAreStable) {
  EXPECT_EQ(all_names<SumOrder>(), "sequential, pairwise, blocked, split-k, kahan");
  EXPECT_EQ(all_names<Accumulator>(), "float16, float32");
}

TEST(HalfSums, NoTermsAreZeroAndSizesMustAgree) {
  for (const auto& [order, name] : EnumNames<SumOrder>::values) {
    EXPECT_EQ(sum({}, order), 0.0);
    EXPECT_EQ(sum({}, order, Accumulator::float32), 0.0);
    EXPECT_EQ(sum({-3.5}, order), -3.5);
  }
  EXPECT_THROW(dot({1.0}, {1.0, 2.0}, SumOrder::sequential), Error);
}

TEST(HalfSums, SmallIntegersAreExactInEveryOrder) {
  for (std::size_t n = 1; n <= 130; ++n) {
    Values a(n), b(n);
    double expected = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<double>(i % 7) - 3.0;
      b[i] = static_cast<double>(i % 5) - 1.0;
      expected += a[i] * b[i];
    }
    for (const auto& [order, name] : EnumNames<SumOrder>::values)
      for (const auto& [accumulator, accumulator_name] : EnumNames<Accumulator>::values)
        ASSERT_EQ(dot(a, b, order, accumulator), expected) << n << " " << name << " " << accumulator_name;
  }
}

// Ones beyond 2048 are half an ulp: a tie that goes to the even 2048. Each order gets as far as its additions let it.
TEST(HalfSums, OrdersAreTheirDefinition) {
  const Values ones(8192, 1.0);
  EXPECT_EQ(sum(ones, SumOrder::sequential), 2048.0);
  EXPECT_EQ(sum(ones, SumOrder::split_k), 8192.0);  // four times 2048
  EXPECT_EQ(sum(ones, SumOrder::pairwise), 8192.0);
  EXPECT_EQ(sum(ones, SumOrder::blocked), 8192.0);  // steps of 32 are whole ulps up to 65504
  EXPECT_EQ(sum(ones, SumOrder::kahan), 8192.0);
  EXPECT_EQ(sum(Values(16384, 1.0), SumOrder::split_k), 8192.0);
  EXPECT_EQ(sum(ones, SumOrder::sequential, Accumulator::float32), 8192.0);
  // 2048 first: pairwise and blocked keep the other ones of its half or block, the rest arrives as a whole.
  Values big(64, 1.0);
  big[0] = 2048.0;
  EXPECT_EQ(sum(big, SumOrder::sequential), 2048.0);
  EXPECT_EQ(sum(big, SumOrder::blocked), 2048.0 + 32.0);
  EXPECT_EQ(sum(big, SumOrder::split_k), 2048.0 + 48.0);
  EXPECT_EQ(sum(big, SumOrder::pairwise), 2048.0 + 62.0);
  EXPECT_EQ(sum(big, SumOrder::kahan), 2048.0 + 64.0);  // 2111 rounded: it is a tie, and 2112 is even
}

TEST(HalfSums, ProductsAreNotRoundedBeforeTheAddition) {
  const double x = 1.0 + 0x1p-10;  // x² = 1 + 2⁻⁹ + 2⁻²⁰, in FP16 1 + 2⁻⁹
  EXPECT_EQ(dot({-1.0 - 0x1p-9, x}, {1.0, x}, SumOrder::sequential), 0x1p-20);
  EXPECT_EQ(dot({-1.0 - 0x1p-9, x}, {1.0, x}, SumOrder::pairwise), 0.0);  // a leaf is rounded as it enters
  EXPECT_EQ(dot({-1.0 - 0x1p-9, x}, {1.0, x}, SumOrder::pairwise, Accumulator::float32), 0x1p-20);
}

TEST(HalfSums, AdditionsAreRoundedOnce) {
  // 1 + (2⁻¹¹ + 2⁻³²): above the tie by less than FP32 sees, so a rounding to float first would give 1.
  const double tiny = 0x1p-11 * (1.0 + 0x1p-10) * (1.0 + 0x1p-10);
  EXPECT_EQ(dot({1.0, 0x1p-11 * (1.0 + 0x1p-10)}, {1.0, 1.0 + 0x1p-10}, SumOrder::sequential), 1.0 + 0x1p-10);
  EXPECT_EQ(static_cast<float>(1.0 + 0x1p-11 + 0x1p-30), static_cast<float>(1.0 + 0x1p-11));
  EXPECT_GT(tiny, 0x1p-11);
  EXPECT_EQ(dot({1.0, 0x1p-11}, {1.0, 1.0}, SumOrder::sequential), 1.0);
  // A product of 2⁻⁴⁸ beside 2¹⁰: the FP64 sum is inexact, the result is the accumulator all the same.
  EXPECT_EQ(dot({1024.0, 0x1p-24}, {1.0, 0x1p-24}, SumOrder::sequential), 1024.0);
  EXPECT_EQ(dot({256.0, 0x1p-24}, {256.0, 1.0}, SumOrder::sequential), std::numeric_limits<double>::infinity());
}

// Long double sums of these terms are exact, so rounding them is the definition of one rounding an addition.
TEST(HalfSums, SequentialSumAgreesWithExactAdditions) {
  for (std::uint32_t trial = 0; trial < 50; ++trial) {
    const Values a = normal_halves(300, 2 * trial), b = normal_halves(300, 2 * trial + 1);
    double half = 0.0;
    float single = 0.0f;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const long double p = static_cast<long double>(a[i]) * b[i];
      half = round_to_half(static_cast<double>(half + p));
      single = static_cast<float>(single + p);
    }
    ASSERT_EQ(dot(a, b, SumOrder::sequential), half);
    ASSERT_EQ(dot(a, b, SumOrder::sequential, Accumulator::float32), static_cast<double>(single));
  }
}

TEST(HalfSums, NormalsAreNormalAndAddressed) {
  std::vector<float> x(100000), again(10), other(10);
  fill_standard_normals(x, {1, 2, 3});
  double first = 0.0, second = 0.0, fourth = 0.0;
  for (const float v : x) {
    first += v;
    second += v * v;
    fourth += std::pow(v, 4);
  }
  EXPECT_NEAR(first / 1e5, 0.0, 0.015);  // five standard errors or so
  EXPECT_NEAR(second / 1e5, 1.0, 0.025);
  EXPECT_NEAR(fourth / 1e5, 3.0, 0.16);
  fill_standard_normals(again, {1, 2, 3});
  fill_standard_normals(other, {1, 2, 4});
  for (std::size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i], x[i]);
    EXPECT_NE(other[i], x[i]);
  }
}

TEST(HalfSums, RoundingVarianceIsThatOfRoundings) {
  const double r = std::sqrt(rounding_variance(1.0, Accumulator::float16));
  EXPECT_NEAR(r, 2.077e-4, 1e-7);
  for (const double sigma : {0.3, 1.0, 1.4, 64.0}) {
    const double relative = std::sqrt(rounding_variance(sigma, Accumulator::float16)) / sigma;
    EXPECT_NEAR(relative, r, 0.004 * r);
    EXPECT_NEAR(std::sqrt(rounding_variance(sigma, Accumulator::float32)) / sigma * 8192.0, relative, 1e-9);
  }
  EXPECT_NEAR(rounding_variance(1e-6, Accumulator::float16), 0x1p-48 / 12.0, 1e-20);  // subnormal: an even grid
  std::vector<float> x(200000);
  fill_standard_normals(x, {5, 0, 0});
  double squares = 0.0;
  for (const double v : x) squares += std::pow(round_to_half(v) - v, 2);
  EXPECT_NEAR(std::sqrt(squares / 2e5), r, 0.01 * r);
}

TEST(HalfSums, ModelCountsTheRoundingsOfEachOrder) {
  const auto v = [](double terms) { return rounding_variance(std::sqrt(terms), Accumulator::float16); };
  const auto model = [](SumOrder order, std::size_t n) {
    return sum_rounding_variance(order, n, 1.0, Accumulator::float16);
  };
  EXPECT_DOUBLE_EQ(model(SumOrder::sequential, 3), v(1) + v(2) + v(3));
  EXPECT_DOUBLE_EQ(model(SumOrder::pairwise, 4), 4 * v(1) + 2 * v(2) + v(4));
  EXPECT_DOUBLE_EQ(model(SumOrder::pairwise, 3), 3 * v(1) + v(2) + v(3));
  EXPECT_DOUBLE_EQ(model(SumOrder::blocked, 33), model(SumOrder::sequential, 32) + v(1) + v(33));
  EXPECT_DOUBLE_EQ(model(SumOrder::split_k, 4), 4 * v(1) + v(2) + v(3) + v(4));
  EXPECT_DOUBLE_EQ(model(SumOrder::kahan, 5), 5 * v(1) + v(5));
  EXPECT_EQ(model(SumOrder::sequential, 0), 0.0);
  EXPECT_EQ(sum_rounding_variance(SumOrder::pairwise, 1, 1.0, Accumulator::float32), 0.0);
}

}  // namespace
}  // namespace kvdiv
