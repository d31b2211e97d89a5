#pragma once
// The straight line through points.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kvdiv/base/fields.h"

namespace kvdiv {

/// y = intercept + slope x. Null is "not defined for these points", never 0 and never NaN.
struct LineFit {
  std::optional<double> slope;      ///< in units of y per unit of x
  std::optional<double> intercept;  ///< in the unit of y
  std::optional<double> slope_se;   ///< standard error of the slope, n − 2 degrees of freedom; null if n < 3
  std::optional<double> r2;         ///< squared correlation, 0 … 1; null if y is constant
  std::optional<double> slope_low, slope_high;  ///< 95 %, slope ± t₀.₉₇₅(n − 2) slope_se
  std::int64_t n = 0;                           ///< pairs of finite values
  std::optional<std::string> reason;            ///< why something above is null
};

template <class V>
void describe_fields(V& v, LineFit& f) {
  v.field("slope", f.slope);
  v.field("intercept", f.intercept);
  v.field("slope_se", f.slope_se);
  v.field("r2", f.r2);
  v.field("slope_low", f.slope_low);
  v.field("slope_high", f.slope_high);
  v.field("n", f.n);
  v.field("reason", f.reason);
}

/// Ordinary least squares, two-pass: slope = Σ(x − x̄)(y − ȳ)/Σ(x − x̄)², slope_se² = Σ residual²/(n − 2)/Σ(x − x̄)².
/// Sizes must be equal (internal error); pairs with a value that is not finite are left out. Fewer than two pairs, or a
/// constant x, give nulls with a reason; two pairs give a line without standard error.
LineFit fit_line(std::span<const double> x, std::span<const double> y);

}  // namespace kvdiv
