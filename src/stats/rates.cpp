#include "kvdiv/stats/rates.h"

#include <algorithm>
#include <limits>

namespace kvdiv {
namespace {

constexpr std::int64_t kMaxTrials = std::int64_t{1} << 31;
constexpr double kTied = 1e-7;
constexpr double kSmallest = std::numeric_limits<double>::min();

/// The hypergeometric distribution of x given the margins: weights relative to the mode's, by the ratio of neighbours, which
/// needs no factorials and loses no digits. Calls visit(x, weight) outward from the mode while weights are normal numbers:
/// below them a ratio near 1 would round a weight to itself, and the walk would not end.
template <class Visit>
void for_each_table(std::int64_t n_x, std::int64_t n_y, std::int64_t both, const Visit& visit) {
  const std::int64_t lowest = std::max<std::int64_t>(0, both - n_y), highest = std::min(n_x, both);
  // P(k + 1)/P(k) = (n_x − k)(both − k)/((k + 1)(n_y − both + k + 1))
  const auto ratio = [&](std::int64_t k) {
    return static_cast<double>(n_x - k) * static_cast<double>(both - k) /
           (static_cast<double>(k + 1) * static_cast<double>(n_y - both + k + 1));
  };
  const double guess =
      (static_cast<double>(n_x) + 1.0) * (static_cast<double>(both) + 1.0) / (static_cast<double>(n_x + n_y) + 2.0);
  const std::int64_t mode = std::clamp(static_cast<std::int64_t>(guess), lowest, highest);
  double weight = 1.0;
  for (std::int64_t k = mode; k <= highest && weight >= kSmallest; weight *= ratio(k), ++k) visit(k, weight);
  weight = 1.0;
  for (std::int64_t k = mode - 1; k >= lowest && weight >= kSmallest; --k) {
    weight /= ratio(k);
    visit(k, weight);
  }
}

}  // namespace

TestResult fisher_exact(std::int64_t x, std::int64_t n_x, std::int64_t y, std::int64_t n_y) {
  TestResult t;
  t.test = "fisher";
  t.variant = "two-sided, by probability";
  if (x < 0 || y < 0 || x > n_x || y > n_y || n_x > kMaxTrials || n_y > kMaxTrials - n_x) {
    t.reason = "impossible counts";
    return t;
  }
  t.n = n_x + n_y;
  if (n_x == 0 || n_y == 0) {
    t.reason = "no trials";
    return t;
  }
  t.effect = static_cast<double>(x) / static_cast<double>(n_x) - static_cast<double>(y) / static_cast<double>(n_y);
  double seen = 0.0;  // stays 0 if the table is so improbable that its weight underflows
  for_each_table(n_x, n_y, x + y, [&](std::int64_t k, double weight) {
    if (k == x) seen = weight;
  });
  double all = 0.0, as_extreme = 0.0;
  for_each_table(n_x, n_y, x + y, [&](std::int64_t, double weight) {
    all += weight;
    if (weight <= seen * (1.0 + kTied)) as_extreme += weight;
  });
  t.p = std::min(1.0, as_extreme / all);
  return t;
}

}  // namespace kvdiv
