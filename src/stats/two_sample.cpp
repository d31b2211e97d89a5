#include "kvdiv/stats/two_sample.h"

#include <algorithm>
#include <cmath>

#include "distributions.h"
#include "moments.h"
#include "quiet.h"

namespace kvdiv {
namespace {

/// A mean, or a difference of two, with its standard error, in units of 2^exponent.
struct Estimate {
  std::int64_t n = 0;
  int exponent = 0;
  std::optional<double> value;
  double se = 0.0, df = 0.0;
  std::optional<std::string> reason;  ///< why there is no standard error

  std::optional<double> in_unit(double x) const { return optional_number(std::ldexp(x, exponent)); }
};

double squared_error(const Moments& m) { return m.squares / (m.n - 1.0) / m.n; }

Estimate estimate_difference(std::span<const double> x_given, std::span<const double> y_given) {
  auto x = finite_values(x_given), y = finite_values(y_given);
  Estimate e;
  e.n = static_cast<std::int64_t>(x.size() + y.size());
  e.exponent = common_exponent({x, y});
  divide_by_power(x, e.exponent);
  divide_by_power(y, e.exponent);
  const Moments mx = moments(x), my = moments(y);
  if (!x.empty() && !y.empty()) e.value = mx.mean - my.mean;
  if (x.size() < 2 || y.size() < 2) {
    e.reason = x.size() < 2 ? "x has fewer than two finite values" : "y has fewer than two finite values";
    return e;
  }
  const double square = squared_error(mx) + squared_error(my);
  if (square == 0.0) {
    e.reason = "no spread: x and y are constant";
    return e;
  }
  const double part = squared_error(mx) / square;  // shares of the square: SE⁴ itself may underflow
  e.df = 1.0 / (part * part / (mx.n - 1.0) + (1.0 - part) * (1.0 - part) / (my.n - 1.0));
  e.se = std::sqrt(square);
  return e;
}

Estimate estimate_mean(std::span<const double> given) {
  auto x = finite_values(given);
  Estimate e;
  e.n = static_cast<std::int64_t>(x.size());
  e.exponent = common_exponent({x});
  divide_by_power(x, e.exponent);
  const Moments m = moments(x);
  if (!x.empty()) e.value = m.mean;
  if (x.size() < 2) {
    e.reason = "fewer than two finite values";
  } else if (m.squares == 0.0) {
    e.reason = "no spread: all values are equal";
  } else {
    e.se = std::sqrt(squared_error(m));
    e.df = m.n - 1.0;
  }
  return e;
}

TestResult named(std::string test, std::string variant, const Estimate& e) {
  TestResult t;
  t.test = std::move(test);
  t.variant = std::move(variant);
  t.n = e.n;
  if (e.value) t.effect = e.in_unit(*e.value);
  t.reason = e.reason;
  if (e.value && !t.effect && !t.reason) t.reason = "beyond the range of a double";
  return t;
}

/// effect ± the t quantile of (1 + level)/2 times SE.
void set_interval(TestResult& t, const Estimate& e, double level) {
  const double half = student_quantile(0.5 + 0.5 * level, e.df) * e.se;
  t.ci_low = e.in_unit(*e.value - half);
  t.ci_high = e.in_unit(*e.value + half);
}

TestResult equivalence(std::string variant, const Estimate& e, double margin) {
  TestResult t = named("equivalence", std::move(variant), e);
  if (!(margin > 0.0) || !std::isfinite(margin)) t.reason = "the margin is not positive and finite";
  if (t.reason) return t;
  const double bound = std::ldexp(margin, -e.exponent);
  const double from_low = (*e.value + bound) / e.se, from_high = (*e.value - bound) / e.se;
  t.statistic = optional_number(from_low < -from_high ? from_low : from_high);
  t.df = e.df;
  t.p = optional_number(student_upper(std::min(from_low, -from_high), e.df));
  set_interval(t, e, 0.9);
  if (!t.statistic) t.reason = "the statistic is beyond the range of a double";
  return t;
}

}  // namespace

TestResult welch_t(std::span<const double> x, std::span<const double> y) {
  const Estimate e = estimate_difference(x, y);
  TestResult t = named("welch-t", "unequal variances", e);
  if (t.reason) return t;
  t.statistic = *e.value / e.se;
  t.df = e.df;
  t.p = optional_number(2.0 * student_upper(std::abs(*t.statistic), e.df));
  set_interval(t, e, 0.95);
  t.min_detectable_effect = e.in_unit((student_quantile(0.975, e.df) + student_quantile(0.8, e.df)) * e.se);
  return t;
}

TestResult equivalence_welch(std::span<const double> x, std::span<const double> y, double margin) {
  return equivalence("two one-sided Welch tests", estimate_difference(x, y), margin);
}

TestResult equivalence_mean(std::span<const double> x, double margin) {
  return equivalence("two one-sided t-tests of one mean", estimate_mean(x), margin);
}

}  // namespace kvdiv
