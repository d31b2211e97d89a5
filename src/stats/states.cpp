#include "kvdiv/stats/states.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

/// √Σ v², scaled by the largest magnitude so that no square overflows or vanishes.
double norm(std::span<const double> v) {
  double largest = 0.0;
  for (const double x : v) largest = std::abs(x) > largest || std::isnan(x) ? std::abs(x) : largest;
  if (largest == 0.0 || !std::isfinite(largest)) return largest;
  double sum = 0.0;
  for (const double x : v) sum += (x / largest) * (x / largest);
  return largest * std::sqrt(sum);
}

}  // namespace

StateDistance compare_states(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail(ErrorKind::internal, "compare_states: {} and {} values", a.size(), b.size());
  StateDistance d;
  std::vector<double> difference(a.size());
  std::transform(a.begin(), a.end(), b.begin(), difference.begin(), std::minus<>());
  d.l2 = norm(difference);
  for (const double x : difference) d.max_abs = std::abs(x) > d.max_abs || std::isnan(x) ? std::abs(x) : d.max_abs;
  d.norm_a = norm(a);
  d.norm_b = norm(b);
  if (d.norm_b > 0.0) d.rel_l2 = d.l2 / d.norm_b;
  if (!(d.norm_a > 0.0) || !(d.norm_b > 0.0)) return d;
  double dot = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) dot += (a[i] / d.norm_a) * (b[i] / d.norm_b);
  d.cosine = d.l2 == 0.0 ? 1.0 : std::clamp(dot, -1.0, 1.0);
  return d;
}

StateDistance compare_states_trimmed(std::span<const double> a, std::span<const double> b, std::int64_t n_trimmed) {
  std::vector<std::size_t> order(b.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return std::abs(b[i]) > std::abs(b[j]); });
  order.erase(order.begin(), order.begin() + std::min<std::ptrdiff_t>(n_trimmed, std::ssize(order)));
  std::vector<double> rest_a, rest_b;
  for (const std::size_t i : order) {
    rest_a.push_back(a[i]);
    rest_b.push_back(b[i]);
  }
  return compare_states(rest_a, rest_b);
}

}  // namespace kvdiv
