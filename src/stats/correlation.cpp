#include "kvdiv/stats/correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "distributions.h"
#include "kvdiv/base/error.h"
#include "kvdiv/stats/sum.h"
#include "moments.h"
#include "quiet.h"

namespace kvdiv {
namespace {

constexpr double kExplained = 1e-10;  // residuals below this of the deviations are rounding, not variation

using Columns = std::vector<std::vector<double>>;

double dot(std::span<const double> a, std::span<const double> b) {
  CompensatedSum sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.add(a[i] * b[i]);
  return sum.value();
}

void divide(std::vector<double>& v, double length) {
  for (double& x : v) x /= length;
}

/// The deviations from the mean, at length 1; all 0 for a constant.
void center(std::vector<double>& v) {
  divide_by_power(v, common_exponent({v}));
  for (int pass = 0; pass < 2; ++pass) {  // the second takes out the rounding of the first mean
    const double mean = moments(v).mean;
    for (double& x : v) x -= mean;
  }
  divide_by_power(v, common_exponent({v}));
  if (const double length = std::sqrt(dot(v, v)); length > 0.0) divide(v, length);
}

/// Takes out of `v` (length 1) what lies along the basis (orthonormal) and gives the rest length 1. Twice, since the
/// first pass leaves its rounding behind. False if nothing but rounding is left.
bool orthogonalize(std::vector<double>& v, std::span<const std::vector<double>> basis) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto& b : basis) {
      const double along = dot(v, b);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] -= along * b[i];
    }
    const double length = std::sqrt(dot(v, v));
    if (length <= kExplained) return false;
    divide(v, length);
  }
  return true;
}

bool is_constant(const std::vector<double>& v) { return dot(v, v) == 0.0; }

/// All that follows from r, of n rows and k controls, n − k ≥ 3.
void set_from_r(TestResult& t, double r, double n, double k) {
  t.effect = r = std::clamp(r, -1.0, 1.0);
  const double df = n - 2.0 - k;
  t.df = df;
  if (std::abs(r) == 1.0) {
    t.p = 0.0;
    t.reason = "perfect correlation: t is infinite";
  } else {
    t.statistic = r * std::sqrt(df / ((1.0 - r) * (1.0 + r)));
    t.p = optional_number(std::min(1.0, 2.0 * student_upper(std::abs(*t.statistic), df)));
  }
  if (df < 2.0) {
    t.reason = (t.reason ? *t.reason + "; " : "") + "one degree of freedom: no interval";
    return;
  }
  const double se = 1.0 / std::sqrt(n - 3.0 - k), z = std::atanh(r), reach = normal_quantile(0.975);
  t.ci_low = std::tanh(z - reach * se);
  t.ci_high = std::tanh(z + reach * se);
  t.min_detectable_effect = std::tanh((reach + normal_quantile(0.8)) * se);
}

/// columns: x, y, then the controls.
TestResult correlate(std::string test, std::string variant, Columns columns) {
  TestResult t;
  t.test = std::move(test);
  t.variant = std::move(variant);
  t.n = static_cast<std::int64_t>(columns[0].size());
  if (columns[0].size() < columns.size() + 1) {
    t.reason = fmt::format("fewer than {} rows of finite values", columns.size() + 1);
    return t;
  }
  for (auto& column : columns) center(column);
  std::vector<std::vector<double>> basis;
  for (std::size_t i = 2; i < columns.size(); ++i) {
    if (is_constant(columns[i]) || !orthogonalize(columns[i], basis)) {
      t.reason = "the controls are constant or depend on each other";
      return t;
    }
    basis.push_back(columns[i]);
  }
  for (const std::size_t i : {0u, 1u}) {
    const auto* name = i == 0 ? "x" : "y";
    if (is_constant(columns[i])) {
      t.reason = fmt::format("{} is constant", name);
    } else if (!basis.empty() && !orthogonalize(columns[i], basis)) {
      t.reason = fmt::format("{} is explained by the controls", name);
    }
    if (t.reason) return t;
  }
  set_from_r(t, dot(columns[0], columns[1]), static_cast<double>(t.n), static_cast<double>(basis.size()));
  return t;
}

}  // namespace

TestResult pearson(std::span<const double> x, std::span<const double> y) {
  const std::span<const double> given[] = {x, y};
  return correlate("pearson", "t", finite_rows(given, "pearson"));
}

TestResult spearman(std::span<const double> x, std::span<const double> y) {
  const std::span<const double> given[] = {x, y};
  Columns columns = finite_rows(given, "spearman");
  for (auto& column : columns) column = average_ranks(column);
  return correlate("spearman", "t, average ranks", std::move(columns));
}

TestResult partial_correlation(std::span<const double> x, std::span<const double> y,
                               std::span<const std::span<const double>> controls) {
  std::vector<std::span<const double>> given{x, y};
  given.insert(given.end(), controls.begin(), controls.end());
  const auto* noun = controls.size() == 1 ? "control" : "controls";
  return correlate("partial-correlation", fmt::format("t, {} {} removed", controls.size(), noun),
                   finite_rows(given, "partial_correlation"));
}

TestResult partial_correlation(std::span<const double> x, std::span<const double> y, std::span<const double> z) {
  return partial_correlation(x, y, std::span(&z, 1));
}

std::vector<double> average_ranks(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); }))
    fail(ErrorKind::internal, "average_ranks: a NaN has no rank");
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    for (std::size_t i = from; i < to; ++i) ranks[order[i]] = 0.5 * static_cast<double>(from + 1 + to);
  }
  return ranks;
}

}  // namespace kvdiv
