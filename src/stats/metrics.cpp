#include "kvdiv/stats/metrics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNear = 0.25;      // below: power series, above: closed forms; both are good to a few ulp here
constexpr double kExpRange = 30.0;  // beyond: e^t is left out of products that could overflow
constexpr double kNarrow = 300.0;   // spread of the logit differences up to which e^t of all tokens is a number
constexpr double kHuge = 1e300;     // finite logits further apart than this: their sums overflow

/// Horner's rule, lowest coefficient first.
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double value = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

/// e^t − 1 − t ≥ 0 for |t| ≤ 700. Near 0 the difference cancels: t² Σ tᵏ/(k+2)!, cut below 1e-17 of the sum.
double expm1_minus_x(double t) {
  static constexpr std::array<double, 12> kSeries{1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                                  1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                                  1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  return std::abs(t) <= kNear ? t * t * polynomial(kSeries, t) : std::expm1(t) - t;
}

/// ln 2 − H(1/(1 + e^t)), the share of one token in JS per unit of (p + q)/2; even in t, 0 … ln 2, t may be infinite.
double js_term(double t) {
  // t²/8 − t⁴/64 + …: the integral of t/(4 cosh²(t/2)), term by term from the series of tanh.
  static constexpr std::array<double, 9> kSeries{1.0 / 8,
                                                 -1.0 / 64,
                                                 1.0 / 576,
                                                 -17.0 / 92160,
                                                 31.0 / 1612800,
                                                 -691.0 / 348364800,
                                                 2.0356856055490655669e-7,
                                                 -2.0825877958078168892e-8,
                                                 2.1257329508622406183e-9};
  const double x = std::abs(t);
  if (x <= kNear) return x * x * polynomial(kSeries, x * x);
  if (x <= 2.0) {  // s tanh s − ln cosh s with s = t/2: the second is half of the first at most, little cancels
    const double half = 0.5 * x, sinh_quarter = std::sinh(0.5 * half);
    return half * std::tanh(half) - std::log1p(2.0 * sinh_quarter * sinh_quarter);
  }
  const double e = std::exp(-x);
  return std::numbers::ln2 - std::log1p(e) - (e > 0.0 ? x * e / (1.0 + e) : 0.0);
}

struct Top {
  double first = -kInf, second = -kInf;
  std::int64_t id = -1;
  bool tie = false;

  void visit(double x, std::int64_t i) {
    if (std::isnan(x)) return;
    if (id < 0 || x > first) {
      second = id < 0 ? -kInf : first;
      first = x;
      id = i;
      tie = false;
    } else if (x == first) {
      tie = true;
    } else {
      second = std::max(second, x);
    }
  }
  double margin() const {
    if (id < 0) return kNan;
    if (tie) return 0.0;
    return second == -kInf ? kInf : first - second;
  }
};

/// What one look at the two rows tells.
struct Scan {
  Top on, off;
  double max_abs = 0.0;             // largest |on − off| of tokens that are not −inf in both arms
  double low = kInf, high = -kInf;  // smallest and largest on − off of tokens finite in both arms
  std::int64_t n_nonfinite = 0;
  bool bit_equal = true, has_softmax = true, one_sided = false;
};

bool no_logit(double x) { return std::isnan(x) || x == kInf; }

Scan scan(std::span<const double> on, std::span<const double> off) {
  Scan s;
  for (std::size_t i = 0; i < on.size(); ++i) {
    const double a = on[i], b = off[i];
    s.on.visit(a, static_cast<std::int64_t>(i));
    s.off.visit(b, static_cast<std::int64_t>(i));
    s.bit_equal &= std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    const bool finite_on = std::isfinite(a), finite_off = std::isfinite(b);
    s.n_nonfinite += static_cast<std::int64_t>(!finite_on) + static_cast<std::int64_t>(!finite_off);
    if (finite_on && finite_off) {
      s.low = std::min(s.low, a - b);
      s.high = std::max(s.high, a - b);
    } else if (no_logit(a) || no_logit(b)) {
      s.has_softmax = false;
    } else {
      s.one_sided |= finite_on != finite_off;
    }
  }
  const double finite_max = std::max({0.0, s.high, -s.low});
  s.has_softmax = s.has_softmax && s.on.first > -kInf && s.off.first > -kInf && finite_max <= kHuge;
  s.max_abs = s.one_sided ? kInf : finite_max;
  return s;
}

struct Softmax {
  std::vector<double> p;
  double max = 0.0, log_sum = 0.0;  // ln p_i = x_i − max − log_sum
};

Softmax softmax(std::span<const double> logits, double max) {
  Softmax out{std::vector<double>(logits.size()), max};
  CompensatedSum sum;
  for (std::size_t i = 0; i < logits.size(); ++i) sum.add(out.p[i] = std::exp(logits[i] - max));
  for (double& p : out.p) p /= sum.value();
  out.log_sum = std::log(sum.value());
  return out;
}

struct Divergences {
  CompensatedSum kl, reverse, js;
  bool kl_infinite = false, reverse_infinite = false;

  /// One token with p, q and t = ln(q/p), any of p and q possibly underflown to 0.
  void add(double p, double q, double t) {
    const bool far = std::abs(t) > kExpRange;  // there nothing cancels, and e^t may overflow where p underflows
    kl.add(far ? q - p - p * t : p * expm1_minus_x(t));
    reverse.add(far ? p - q + q * t : q * expm1_minus_x(-t));
    js.add(0.5 * (p + q) * js_term(t));
  }
  /// A token that has probability in one arm only.
  void add_one_sided(double p, double q) {
    (p > q ? reverse : kl).add(p + q);  // the term q − p, or p − q, of the direction that stays finite
    js.add(0.5 * (p + q) * std::numbers::ln2);
  }
};

/// (a − b) − mean without the rounding of a − b, which matters where a common shift hides small differences.
double centered(double a, double b, double mean) {
  const double d = a - b, seen = d - a;
  const double error = (a - (d - seen)) - (b + seen);  // Knuth's TwoSum: a − b = d + error exactly
  return (d - mean) + error;
}

/// Rows of which every token is finite in both arms or in neither, with differences within kNarrow of their mean m.
/// ln(q/p) = k − e with e = on − off − m and k = −ln E_p[exp(−e)]: no difference of two log-softmaxes, whose rounding
/// (1e-16 times the logits) would drown differences of that size.
void add_narrow(std::span<const double> on, std::span<const double> off, const Softmax& p, double mean,
                Divergences& out) {
  CompensatedSum first, rest;  // E[e] (0 but for rounding) and E[exp(−e) − 1 + e]
  for (std::size_t i = 0; i < on.size(); ++i) {
    if (on[i] == -kInf) continue;
    const double e = centered(on[i], off[i], mean);
    first.add(p.p[i] * e);
    rest.add(p.p[i] * expm1_minus_x(-e));
  }
  const double k = -std::log1p(rest.value() - first.value());
  for (std::size_t i = 0; i < on.size(); ++i) {
    if (on[i] == -kInf) continue;
    const double t = k - centered(on[i], off[i], mean);
    const double ratio = std::abs(t) <= kNear ? 1.0 + (t + expm1_minus_x(t)) : std::exp(t);
    out.add(p.p[i], p.p[i] * ratio, t);
  }
}

/// Any two rows that have a softmax. Differences of this size are far above the rounding of the log-softmaxes.
void add_wide(std::span<const double> on, std::span<const double> off, const Softmax& p, const Softmax& q,
              Divergences& out) {
  for (std::size_t i = 0; i < on.size(); ++i) {
    const bool dead_on = on[i] == -kInf, dead_off = off[i] == -kInf;
    if (dead_on && dead_off) continue;
    if (dead_on || dead_off) {
      (dead_off ? out.kl_infinite : out.reverse_infinite) = true;
      out.add_one_sided(p.p[i], q.p[i]);
    } else {
      out.add(p.p[i], q.p[i], (off[i] - q.max - q.log_sum) - (on[i] - p.max - p.log_sum));
    }
  }
}

Divergences divergences(std::span<const double> on, std::span<const double> off, const Scan& s) {
  Divergences out;
  const Softmax p = softmax(on, s.on.first);
  CompensatedSum mean;
  for (std::size_t i = 0; i < on.size(); ++i)
    if (std::isfinite(on[i]) && std::isfinite(off[i])) mean.add(p.p[i] * (on[i] - off[i]));
  if (!s.one_sided && s.high - s.low <= kNarrow) {
    add_narrow(on, off, p, mean.value(), out);
  } else {
    add_wide(on, off, p, softmax(off, s.off.first), out);
  }
  return out;
}

}  // namespace

StepMetrics compare_logits(std::span<const double> on, std::span<const double> off) {
  if (on.size() != off.size() || on.empty())
    fail(ErrorKind::internal, "compare_logits: expected two rows of one vocabulary, found {} and {} logits", on.size(),
         off.size());
  const Scan s = scan(on, off);
  StepMetrics m;
  m.bit_equal = s.bit_equal;
  m.n_nonfinite = s.n_nonfinite;
  m.margin_on = s.on.margin();
  m.margin_off = s.off.margin();
  m.tie_on = s.on.tie;
  m.tie_off = s.off.tie;
  m.top1_on = s.on.id;
  m.top1_off = s.off.id;
  m.top1_equal = s.has_softmax && s.on.id == s.off.id;
  if (!s.has_softmax) {
    m.kl_on_off_nats = m.kl_off_on_nats = m.js_nats = m.max_abs_dlogit = kNan;
    return m;
  }
  m.max_abs_dlogit = s.max_abs;
  if (s.bit_equal) return m;  // exactly 0, without a sum
  const Divergences d = divergences(on, off, s);
  m.kl_on_off_nats = d.kl_infinite ? kInf : std::max(0.0, d.kl.value());
  m.kl_off_on_nats = d.reverse_infinite ? kInf : std::max(0.0, d.reverse.value());
  m.js_nats = std::clamp(d.js.value(), 0.0, std::numbers::ln2);
  return m;
}

void put_metrics(const StepMetrics& metrics, StepRecord& record) {
  record.kl_on_off_nats = metrics.kl_on_off_nats;
  record.kl_off_on_nats = metrics.kl_off_on_nats;
  record.js_nats = metrics.js_nats;
  record.max_abs_dlogit = metrics.max_abs_dlogit;
  record.bit_equal = metrics.bit_equal;
  record.top1_equal = metrics.top1_equal;
  record.margin_on = metrics.margin_on;
  record.margin_off = metrics.margin_off;
  record.tie_on = metrics.tie_on;
  record.tie_off = metrics.tie_off;
  record.n_nonfinite = metrics.n_nonfinite;
}

double kl_bound_from_dlogit(double delta) { return 0.5 * delta * delta; }

}  // namespace kvdiv
