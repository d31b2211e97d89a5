#include "kvdiv/numerics/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The definition of binary16, independent of how halves are rounded. 0x7c00 and up are not finite.
double decode(unsigned code) {
  const int exponent = static_cast<int>((code >> 10) & 31), fraction = static_cast<int>(code & 1023);
  const double size = exponent == 0   ? std::ldexp(fraction, -24)
                      : exponent < 31 ? std::ldexp(1024 + fraction, exponent - 25)
                      : fraction == 0 ? kInf
                                      : kNan;
  return (code & 0x8000) != 0 ? -size : size;
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(Half, EveryHalfIsItsOwnRounding) {
  for (unsigned code = 0; code < 0x10000; ++code) {
    const double x = decode(code);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(round_to_half(x)));
      EXPECT_TRUE(std::isnan(round_to_half(static_cast<float>(x))));
      continue;
    }
    ASSERT_TRUE(same_bits(round_to_half(x), x)) << code;
    ASSERT_TRUE(same_bits(static_cast<double>(round_to_half(static_cast<float>(x))), x)) << code;
  }
}

// Between neighbours c and c + 1 everything is decided at their midpoint; one double to either side of it must go to
// the nearer half (a rounding through float sees the tie there and goes wrong for half of the codes), the midpoint
// itself to the even code. The last pair, 65504 and "65536", is the overflow.
TEST(Half, MidpointsGoToTheEvenCodeAndNothingElseDoes) {
  for (unsigned code = 0; code < 0x7c00; ++code) {
    const double low = decode(code), high = code == 0x7bff ? 65536.0 : decode(code + 1);
    const double upper = code == 0x7bff ? kInf : high, middle = (low + high) / 2;
    ASSERT_EQ(round_to_half(middle), code % 2 == 0 ? low : upper) << code;
    ASSERT_EQ(round_to_half(std::nextafter(middle, 0.0)), low) << code;
    ASSERT_EQ(round_to_half(std::nextafter(middle, kInf)), upper) << code;
    ASSERT_EQ(round_to_half(-middle), -round_to_half(middle)) << code;
    const auto below = std::nextafter(static_cast<float>(middle), 0.0f);
    ASSERT_EQ(round_to_half(below), static_cast<float>(low)) << code;
  }
}

TEST(Half, DoubleRoundingTrap) {
  const double x = 1.0 + 0x1p-11 + 0x1p-40;  // just above the tie between 1 and 1 + 2⁻¹⁰; in float it is the tie
  EXPECT_EQ(round_to_half(static_cast<double>(static_cast<float>(x))), 1.0);
  EXPECT_EQ(round_to_half(x), 1.0 + 0x1p-10);
}

TEST(Half, OverflowAndUnderflow) {
  EXPECT_EQ(round_to_half(65504.0), kLargestHalf);
  EXPECT_EQ(round_to_half(65519.0), 65504.0);
  EXPECT_EQ(round_to_half(65519.999999), 65504.0);
  EXPECT_EQ(round_to_half(65520.0), kInf);
  EXPECT_EQ(round_to_half(-65520.0f), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(round_to_half(1e300), kInf);
  EXPECT_EQ(round_to_half(kInf), kInf);
  EXPECT_EQ(round_to_half(1e-8), 0.0);
  EXPECT_TRUE(same_bits(round_to_half(-1e-8), -0.0));
  EXPECT_TRUE(same_bits(round_to_half(-0.0), -0.0));
  EXPECT_EQ(round_to_half(6e-8), kSmallestHalf);
  EXPECT_EQ(round_to_half(0x1p-25), 0.0);  // the tie with 0 goes to 0
  EXPECT_EQ(round_to_half(1.5 * 0x1p-24), 0x1p-23);
  EXPECT_EQ(round_to_half(std::numeric_limits<double>::denorm_min()), 0.0);
  EXPECT_EQ(round_to_half(std::nextafter(kSmallestNormalHalf, 0.0)), kSmallestNormalHalf);
  EXPECT_TRUE(std::isnan(round_to_half(kNan)));
  EXPECT_TRUE(std::isnan(round_to_half(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Half, UlpIsTheDistanceToTheNextHalf) {
  for (unsigned code = 0; code < 0x7bff; ++code) ASSERT_EQ(ulp_of_half(decode(code)), decode(code + 1) - decode(code));
  EXPECT_EQ(ulp_of_half(-1.0), 0x1p-10);
  EXPECT_EQ(ulp_of_half(65504.0), 32.0);
  EXPECT_EQ(ulp_of_half(1e30), 32.0);
  EXPECT_EQ(ulp_of_half(1e-30), 0x1p-24);
  EXPECT_TRUE(std::isnan(ulp_of_half(kInf)));
  EXPECT_TRUE(std::isnan(ulp_of_half(kNan)));
}

TEST(Half, MantissaBitsOfAHalfAgreeInTheNormalRange) {
  for (double x = 6.2e-5; x < 65000.0; x *= 1.00037) {
    ASSERT_EQ(round_to_mantissa_bits(x, 10), round_to_half(x));
    ASSERT_EQ(round_to_mantissa_bits(-x, 10), round_to_half(-x));
    ASSERT_EQ(round_to_mantissa_bits(x, 23), static_cast<double>(static_cast<float>(x)));
  }
}

TEST(Half, MantissaBitsHaveNoLimitOfExponent) {
  EXPECT_EQ(round_to_mantissa_bits(1.0 + 0x1p-8, 7), 1.0);  // ties to even
  EXPECT_EQ(round_to_mantissa_bits(1.0 + 3 * 0x1p-8, 7), 1.0 + 0x1p-6);
  EXPECT_EQ(round_to_mantissa_bits(1e10 + 1.0, 10), round_to_mantissa_bits(1e10, 10));
  EXPECT_EQ(round_to_mantissa_bits((1.0 + 0x1p-11) * 0x1p300, 10), 0x1p300);
  EXPECT_EQ(round_to_mantissa_bits((1.0 + 3 * 0x1p-11) * 0x1p-300, 10), (1.0 + 0x1p-9) * 0x1p-300);
  EXPECT_EQ(round_to_mantissa_bits((1025.0 + 0.5) * 0x1p-1070, 10), 1026.0 * 0x1p-1070);  // a subnormal double
  EXPECT_EQ(round_to_mantissa_bits(std::numeric_limits<double>::denorm_min(), 1),
            std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(round_to_mantissa_bits(0.1, 52), 0.1);
  EXPECT_EQ(round_to_mantissa_bits(std::numeric_limits<double>::max(), 10), kInf);
  EXPECT_TRUE(same_bits(round_to_mantissa_bits(-0.0, 10), -0.0));
  EXPECT_EQ(round_to_mantissa_bits(-kInf, 10), -kInf);
  EXPECT_TRUE(std::isnan(round_to_mantissa_bits(kNan, 10)));
  EXPECT_THROW(round_to_mantissa_bits(1.0, 0), Error);
  EXPECT_THROW(round_to_mantissa_bits(1.0, 53), Error);
}

}  // namespace
}  // namespace kvdiv
