#pragma once
// The terms of the divergences of metrics.h, and the sizes at which their formulas change. Shared with CUDA kernels.
#include <cmath>
#include <cstddef>
#include <numbers>

#include "kvdiv/base/host_device.h"

namespace kvdiv::metric_terms {

inline constexpr double kNear = 0.25;      // below: power series, above: closed forms; both are good to a few ulp here
inline constexpr double kExpRange = 30.0;  // beyond: e^t is left out of products that could overflow

/// Horner's rule, lowest coefficient first.
template <std::size_t N>
KVDIV_HOST_DEVICE inline double polynomial(const double (&coefficients)[N], double x) {
  double value = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

/// e^t − 1 − t ≥ 0 for |t| ≤ 700. Near 0 the difference cancels: t² Σ tᵏ/(k+2)!, cut below 1e-17 of the sum.
KVDIV_HOST_DEVICE inline double expm1_minus_x(double t) {
  constexpr double kSeries[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  return std::fabs(t) <= kNear ? t * t * polynomial(kSeries, t) : std::expm1(t) - t;
}

/// ln 2 − H(1/(1 + e^t)), the share of one token in JS per unit of (p + q)/2; even in t, 0 … ln 2, t may be infinite.
KVDIV_HOST_DEVICE inline double js_term(double t) {
  // t²/8 − t⁴/64 + …: the integral of t/(4 cosh²(t/2)), term by term from the series of tanh.
  constexpr double kSeries[] = {1.0 / 8,
                                -1.0 / 64,
                                1.0 / 576,
                                -17.0 / 92160,
                                31.0 / 1612800,
                                -691.0 / 348364800,
                                2.0356856055490655669e-7,
                                -2.0825877958078168892e-8,
                                2.1257329508622406183e-9};
  const double x = std::fabs(t);
  if (x <= kNear) return x * x * polynomial(kSeries, x * x);
  if (x <= 2.0) {  // s tanh s − ln cosh s with s = t/2: the second is half of the first at most, little cancels
    const double half = 0.5 * x, sinh_quarter = std::sinh(0.5 * half);
    return half * std::tanh(half) - std::log1p(2.0 * sinh_quarter * sinh_quarter);
  }
  const double e = std::exp(-x);
  return std::numbers::ln2 - std::log1p(e) - (e > 0.0 ? x * e / (1.0 + e) : 0.0);
}

/// (a − b) − mean without the rounding of a − b, which matters where a common shift hides small differences.
KVDIV_HOST_DEVICE inline double centered(double a, double b, double mean) {
  const double d = a - b, seen = d - a;
  const double error = (a - (d - seen)) - (b + seen);  // Knuth's TwoSum: a − b = d + error exactly
  return (d - mean) + error;
}

}  // namespace kvdiv::metric_terms
