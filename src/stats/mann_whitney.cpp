#include <algorithm>
#include <cmath>
#include <utility>

#include "distributions.h"
#include "kvdiv/stats/correlation.h"
#include "kvdiv/stats/two_sample.h"
#include "moments.h"
#include "quiet.h"

namespace kvdiv {
namespace {

constexpr std::size_t kExactUpTo = 8;          // SciPy's bound of the smaller sample
constexpr std::size_t kMaxExactPairs = 10000;  // the work grows as the square of nₓnᵧ/2: 2.5e7 additions here

struct Ranked {
  std::size_t n_x = 0, n_y = 0;
  double u_x = 0.0;
  double tie_cubes = 0.0;  ///< Σ(t³ − t) over the groups of ties
  bool all_equal = false;

  double pairs() const { return static_cast<double>(n_x) * static_cast<double>(n_y); }
  double smaller_u() const { return std::min(u_x, pairs() - u_x); }
};

Ranked rank_both(const std::vector<double>& x, const std::vector<double>& y) {
  Ranked r{x.size(), y.size()};
  std::vector<double> all = x;
  all.insert(all.end(), y.begin(), y.end());
  const std::vector<double> ranks = average_ranks(all);
  double sum = 0.0;  // exact: multiples of ½
  for (std::size_t i = 0; i < x.size(); ++i) sum += ranks[i];
  r.u_x = sum - 0.5 * static_cast<double>(r.n_x) * static_cast<double>(r.n_x + 1);
  std::sort(all.begin(), all.end());
  for (auto from = all.begin(); from != all.end();) {
    const auto to = std::upper_bound(from, all.end(), *from);
    const auto t = static_cast<double>(to - from);
    r.tie_cubes += t * t * t - t;
    from = to;
  }
  r.all_equal = !all.empty() && all.front() == all.back();
  return r;
}

/// P(U ≤ u) of two samples of m and n distinct values, all orders being equally likely. The largest value is one of the
/// m with probability m/(m + n), and then above all n of the others (Mann & Whitney, 1947):
///   P(m, n, u) = m/(m + n) P(m − 1, n, u − n) + n/(m + n) P(m, n − 1, u).
/// Only positive terms, so no digits are lost, and probabilities, so that nothing overflows.
double exact_lower(std::size_t m, std::size_t n, double u) {
  if (m > n) std::swap(m, n);
  std::vector<std::vector<double>> p(m + 1);  // p[i][u] for i and j values
  for (std::size_t i = 0; i <= m; ++i) {
    p[i].assign(i * n + 1, 0.0);
    p[i][0] = 1.0;  // j = 0: U is 0
  }
  for (std::size_t j = 1; j <= n; ++j)
    for (std::size_t i = 1; i <= m; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(i + j);
      for (std::size_t k = i * j + 1; k-- > 0;)
        p[i][k] = (k >= j ? share * p[i - 1][k - j] : 0.0) + (1.0 - share) * p[i][k];
    }
  double sum = 0.0;
  for (std::size_t k = 0; k <= static_cast<std::size_t>(u); ++k) sum += p[m][k];
  return sum;
}

double asymptotic_p(const Ranked& r) {
  const auto n = static_cast<double>(r.n_x + r.n_y);
  const double variance = r.pairs() / 12.0 * ((n + 1.0) - r.tie_cubes / (n * (n - 1.0)));
  const double z = (0.5 * r.pairs() - r.smaller_u() - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2.0 * normal_upper(z));
}

/// The rank-biserial correlation that 80 % power sees, from U's null variance; none if even complete separation is not
/// enough.
std::optional<double> detectable(const Ranked& r) {
  const double sigma = std::sqrt(r.pairs() / 12.0 * static_cast<double>(r.n_x + r.n_y + 1));
  const double effect = 2.0 / r.pairs() * (normal_quantile(0.975) + normal_quantile(0.8)) * sigma;
  return effect <= 1.0 ? std::optional(effect) : std::nullopt;
}

bool choose_exact(const Ranked& r, RankMethod method) {
  if (method != RankMethod::automatic) return method == RankMethod::exact;
  return r.tie_cubes == 0.0 && std::min(r.n_x, r.n_y) <= kExactUpTo && r.n_x * r.n_y <= kMaxExactPairs;
}

}  // namespace

TestResult mann_whitney(std::span<const double> x_given, std::span<const double> y_given, RankMethod method) {
  const auto x = finite_values(x_given), y = finite_values(y_given);
  const Ranked r = rank_both(x, y);
  const bool exact = choose_exact(r, method);
  TestResult t;
  t.test = "mann-whitney";
  t.variant = exact ? "exact" : "asymptotic, tie-corrected, continuity-corrected";
  t.n = static_cast<std::int64_t>(x.size() + y.size());
  if (x.empty() || y.empty()) {
    t.reason = x.empty() ? "x has no finite values" : "y has no finite values";
    return t;
  }
  t.statistic = r.u_x;
  t.effect = 2.0 * r.u_x / r.pairs() - 1.0;
  if (r.all_equal) {
    t.reason = "all values are equal";
  } else if (exact && r.tie_cubes > 0.0) {
    t.reason = "ties: the exact distribution is that of distinct values";
  } else if (exact && r.n_x * r.n_y > kMaxExactPairs) {
    t.reason = "too many values for the exact distribution";
  } else {
    t.p = exact ? std::min(1.0, 2.0 * exact_lower(r.n_x, r.n_y, r.smaller_u())) : optional_number(asymptotic_p(r));
    t.min_detectable_effect = detectable(r);
  }
  return t;
}

}  // namespace kvdiv
