#include "kvdiv/stats/regression.h"

#include <gtest/gtest.h>

#include "kvdiv/base/error.h"
#include "stats/stats_checks.h"

namespace kvdiv {
namespace {

TEST(Regression, AnExactLineIsFound) {
  const LineFit f = fit_line(Values{1, 2, 3, 4}, Values{5, 7, 9, 11});
  EXPECT_DOUBLE_EQ(*f.slope, 2.0);
  EXPECT_DOUBLE_EQ(*f.intercept, 3.0);
  EXPECT_DOUBLE_EQ(*f.r2, 1.0);
  EXPECT_NEAR(*f.slope_se, 0.0, 1e-15);
  EXPECT_NEAR(*f.slope_low, 2.0, 1e-14);
  EXPECT_NEAR(*f.slope_high, 2.0, 1e-14);
  EXPECT_EQ(f.n, 4);
  EXPECT_FALSE(f.reason);
}

TEST(Regression, DegenerateInputIsNullWithAReason) {
  for (const auto& [x, y] :
       {std::pair<Values, Values>{{}, {}}, {{1}, {2}}, {{1, kNan, 3}, {kInf, 2, 5}}, {{kNan}, {kNan}}}) {
    const LineFit f = fit_line(x, y);
    EXPECT_EQ(f.reason, "fewer than two pairs of finite values");
    for (const auto& v : {f.slope, f.intercept, f.slope_se, f.r2, f.slope_low, f.slope_high}) EXPECT_FALSE(v);
  }
  for (const double x : {0.0, 0.1, 1e8 / 3, -7e-300, 1e300}) {
    const LineFit f = fit_line(Values(3, x), Values{1, 2, 3});
    EXPECT_EQ(f.reason, "x is constant");
    for (const auto& v : {f.slope, f.intercept, f.slope_se, f.r2, f.slope_low, f.slope_high}) EXPECT_FALSE(v);
    const LineFit flat = fit_line(Values{1, 2, 4}, Values(3, x));
    EXPECT_EQ(flat.slope, 0.0);
    EXPECT_EQ(flat.slope_se, 0.0);
    EXPECT_EQ(flat.intercept, x);
    EXPECT_FALSE(flat.r2);
    EXPECT_EQ(flat.reason, "y is constant: no r2");
  }
  const LineFit two = fit_line(Values{1, 3}, Values{2, 6});
  EXPECT_EQ(two.slope, 2.0);
  EXPECT_EQ(two.intercept, 0.0);
  EXPECT_EQ(two.r2, 1.0);
  EXPECT_FALSE(two.slope_se);
  EXPECT_FALSE(two.slope_low);
  EXPECT_EQ(two.reason, "two pairs: no standard error");
  EXPECT_THROW(fit_line(Values{1, 2}, Values{1}), Error);
}

TEST(Regression, FollowsUnitsAndOrigin) {
  const Values x = normal_values(15, 1), y = normal_values(15, 2);
  const LineFit f = fit_line(x, y);
  for (const double factor : {1e-160, 1e-8, 1e6, 1e140}) {
    const LineFit g = fit_line(mapped(x, factor, 0.0), mapped(y, -3.0, 8.0));
    expect_near(g.slope, -3.0 * *f.slope / factor, 1e-12);
    expect_near(g.slope_se, 3.0 * *f.slope_se / factor, 1e-12);
    expect_near(g.slope_low, -3.0 * *f.slope_high / factor, 1e-12);
    expect_near(g.intercept, 8.0 - 3.0 * *f.intercept, 1e-12);
    expect_near(g.r2, f.r2, 1e-12);
  }
  const LineFit far = fit_line(mapped(x, 1.0, 1e6), y);
  expect_near(far.slope, f.slope, 1e-8);
  const LineFit overflow = fit_line(mapped(x, 1e-200, 0.0), mapped(y, 1e200, 0.0));
  EXPECT_FALSE(overflow.slope);
  EXPECT_TRUE(overflow.reason);
  expect_finite(overflow);
}

TEST(Regression, NonFiniteValuesTakeTheirPairsAlong) {
  const Values x{1, 2, kNan, 4, 5}, y{2, 3, 4, kInf, 9};
  EXPECT_EQ(to_json_value(fit_line(x, y)), to_json_value(fit_line(Values{1, 2, 5}, Values{2, 3, 9})));
}

TEST(Regression, KeysAreInOrderAndReadBack) {
  EXPECT_EQ(field_keys<LineFit>(), (std::vector<std::string>{"slope", "intercept", "slope_se", "r2", "slope_low",
                                                             "slope_high", "n", "reason"}));
  const LineFit f = fit_line(normal_values(5, 1), normal_values(5, 2));
  LineFit read;
  from_json_value(to_json_value(f), read, "line");
  EXPECT_EQ(to_json_value(read).dump(), to_json_value(f).dump());
}

TEST(Regression, IntervalCoversTheTruthAsOftenAsItSays) {
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Values x = normal_values(10, seed);
    Values y = normal_values(10, seed + 5000);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += 4.0 * x[i];
    const LineFit f = fit_line(x, y);
    covered += *f.slope_low <= 4.0 && 4.0 <= *f.slope_high;
  }
  EXPECT_NEAR(covered, 950, 25);
}

}  // namespace
}  // namespace kvdiv
