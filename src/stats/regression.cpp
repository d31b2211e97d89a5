#include "kvdiv/stats/regression.h"

#include <algorithm>
#include <cmath>

#include "distributions.h"
#include "kvdiv/stats/sum.h"
#include "moments.h"
#include "quiet.h"

namespace kvdiv {
namespace {

/// Sums of products of deviations.
struct Products {
  Moments x, y;
  double xy = 0.0;
};

Products products(std::span<const double> x, std::span<const double> y) {
  Products s{moments(x), moments(y)};
  CompensatedSum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add((x[i] - s.x.mean) * (y[i] - s.y.mean));
  s.xy = sum.value();
  return s;
}

double residual_squares(std::span<const double> x, std::span<const double> y, const Products& s, double slope) {
  CompensatedSum sum;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double residual = (y[i] - s.y.mean) - slope * (x[i] - s.x.mean);
    sum.add(residual * residual);
  }
  return sum.value();
}

void set_standard_error(LineFit& fit, double slope, double se, int exponent) {
  const double half = student_quantile(0.975, static_cast<double>(fit.n - 2)) * se;
  fit.slope_se = optional_number(std::ldexp(se, exponent));
  fit.slope_low = optional_number(std::ldexp(slope - half, exponent));
  fit.slope_high = optional_number(std::ldexp(slope + half, exponent));
}

}  // namespace

LineFit fit_line(std::span<const double> x_given, std::span<const double> y_given) {
  const std::span<const double> given[] = {x_given, y_given};
  auto rows = finite_rows(given, "fit_line");
  auto &x = rows[0], &y = rows[1];
  const int x_exponent = common_exponent({x}), y_exponent = common_exponent({y}), exponent = y_exponent - x_exponent;
  divide_by_power(x, x_exponent);
  divide_by_power(y, y_exponent);
  const Products s = products(x, y);
  LineFit fit;
  fit.n = static_cast<std::int64_t>(x.size());
  if (fit.n < 2) {
    fit.reason = "fewer than two pairs of finite values";
    return fit;
  }
  if (s.x.squares == 0.0) {
    fit.reason = "x is constant";
    return fit;
  }
  const double slope = s.xy / s.x.squares;
  fit.slope = optional_number(std::ldexp(slope, exponent));
  fit.intercept = optional_number(std::ldexp(s.y.mean - slope * s.x.mean, y_exponent));
  if (s.y.squares > 0.0) fit.r2 = std::min(1.0, (s.xy / s.x.squares) * (s.xy / s.y.squares));
  if (fit.n > 2)
    set_standard_error(fit, slope, std::sqrt(residual_squares(x, y, s, slope) / (s.x.n - 2.0) / s.x.squares), exponent);
  if (fit.n == 2) {
    fit.reason = "two pairs: no standard error";
  } else if (!fit.r2) {
    fit.reason = "y is constant: no r2";
  } else if (!fit.slope || !fit.slope_se || !fit.intercept) {
    fit.reason = "beyond the range of a double";
  }
  return fit;
}

}  // namespace kvdiv
