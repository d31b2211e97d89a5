#include "kvdiv/stats/hypothesis.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <numeric>

#include "distributions.h"
#include "quiet.h"

namespace kvdiv {
namespace {

namespace bm = boost::math;

TestResult named(std::string variant, std::int64_t n) {
  TestResult t;
  t.test = "mcnemar";
  t.variant = std::move(variant);
  t.n = n;
  return t;
}

void set_p_values(McNemarResult& m) {
  const auto discordant = static_cast<double>(m.b + m.c), fewer = static_cast<double>(std::min(m.b, m.c));
  const bm::binomial_distribution<double, Quiet> chance(discordant, 0.5);
  const double tail = bm::cdf(chance, fewer), point = bm::pdf(chance, fewer);
  m.exact.statistic = m.mid_p.statistic = fewer;
  m.exact.p = m.b == m.c ? 1.0 : optional_number(std::min(1.0, 2.0 * tail));
  // tail − point/2 is taken before doubling: both are small together, and the difference stays positive.
  m.mid_p.p = optional_number(m.b == m.c ? 1.0 - 0.5 * point : std::clamp(2.0 * (tail - 0.5 * point), 0.0, 1.0));
  const double excess = std::max(0.0, std::abs(static_cast<double>(m.b - m.c)) - 1.0);
  m.chi2.statistic = excess * excess / discordant;
  m.chi2.df = 1.0;
  const bm::chi_squared_distribution<double, Quiet> chi2(1.0);
  m.chi2.p = optional_number(bm::cdf(bm::complement(chi2, *m.chi2.statistic)));
}

/// Indices of the p-values that take part, ascending by p.
std::vector<std::size_t> participants(std::span<const std::optional<double>> p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i)
    if (p[i] && *p[i] >= 0.0 && *p[i] <= 1.0) order.push_back(i);  // false for NaN
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return *p[i] < *p[j]; });
  return order;
}

}  // namespace

McNemarResult mcnemar(std::int64_t b, std::int64_t c, std::int64_t n) {
  McNemarResult m{b, c, named("exact", n), named("mid-p", n), named("chi2-continuity", n)};
  const bool valid = b >= 0 && c >= 0 && n >= 0 && b <= n && c <= n - b;
  for (TestResult* t : {&m.exact, &m.mid_p, &m.chi2}) {
    if (!valid) {
      t->reason = "impossible counts";
    } else if (n == 0) {
      t->reason = "no pairs";
    } else {
      t->effect = static_cast<double>(b - c) / static_cast<double>(n);
      if (b + c > 0)
        t->min_detectable_effect = (normal_quantile(0.975) + normal_quantile(0.8)) *
                                   std::sqrt(static_cast<double>(b + c)) / static_cast<double>(n);
    }
  }
  if (!valid) return m;
  if (b + c > 0) {
    set_p_values(m);
  } else {
    m.exact.statistic = m.mid_p.statistic = 0.0;
    m.exact.p = m.mid_p.p = 1.0;
    m.chi2.reason = n == 0 ? "no pairs" : "no discordant pairs";
  }
  return m;
}

AdjustedP adjust(std::span<const std::optional<double>> p, Adjustment method) {
  const std::vector<std::size_t> order = participants(p);
  AdjustedP out{std::vector<std::optional<double>>(p.size()), static_cast<std::int64_t>(order.size())};
  const auto m = static_cast<double>(order.size());
  double running = 0.0;
  switch (method) {
    case Adjustment::bonferroni:
      for (const std::size_t i : order) out.p[i] = std::min(1.0, m * *p[i]);
      break;
    case Adjustment::holm:
      for (std::size_t rank = 0; rank < order.size(); ++rank) {
        running = std::max(running, std::min(1.0, (m - static_cast<double>(rank)) * *p[order[rank]]));
        out.p[order[rank]] = running;
      }
      break;
    case Adjustment::benjamini_hochberg:
      running = 1.0;
      for (std::size_t rank = order.size(); rank > 0; --rank) {
        running = std::min(running, m * *p[order[rank - 1]] / static_cast<double>(rank));
        out.p[order[rank - 1]] = running;
      }
      break;
  }
  return out;
}

void adjust_family(std::span<TestResult* const> tests, Adjustment method, std::string_view family) {
  std::vector<std::optional<double>> p;
  for (const TestResult* test : tests) p.push_back(test->p);
  const AdjustedP adjusted = adjust(p, method);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    tests[i]->p_adjusted = adjusted.p[i];
    tests[i]->adjustment = fmt::format("{} (m = {})", name_of(method), adjusted.m);
    tests[i]->family = std::string(family);
  }
}

void adjust_family(std::span<Json* const> tests, Adjustment method, std::string_view family) {
  std::vector<TestResult> results(tests.size());
  std::vector<TestResult*> pointers;
  for (std::size_t i = 0; i < tests.size(); ++i) {
    from_json_value(*tests[i], results[i], "test");
    pointers.push_back(&results[i]);
  }
  adjust_family(pointers, method, family);
  for (std::size_t i = 0; i < tests.size(); ++i) *tests[i] = to_json_value(results[i]);
}

}  // namespace kvdiv
