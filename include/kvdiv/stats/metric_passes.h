#pragma once
// compare_logits() as passes over the tokens of two rows, a and b. A pass looks at any set of tokens (`visit`) and takes
// over what another one saw (`merge`), so that the tokens can be cut into pieces; one that has seen nothing changes
// nothing. Host (one piece, ids ascending) and CUDA kernels share them: each formula and special case stands here once.
//
//   1. Scan               what needs no softmax: largest logits, ties, bits, special values
//   2. SumOfExponentials  one for each row
//   3. MeanDifference     m = E_p[a − b]
//   4. Expectation        only where Scan::is_narrow(): E_p[e] and E_p[exp(−e) − 1 + e], e = a − b − m
//   5. Divergences        both KLs and JS
//
// 2 to 5 take place only where Scan::has_divergences(). p and q are the softmaxes of a and b. Scan comes out the same
// however the tokens are cut; the sums are compensated and differ by about an ulp.
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kvdiv/base/host_device.h"
#include "kvdiv/base/step_metrics.h"
#include "kvdiv/stats/metric_terms.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv::metric_passes {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kNarrow = 300.0;  // spread of the logit differences up to which e^t of all tokens is a number
inline constexpr double kHuge = 1e300;    // finite logits larger, or further apart, than this: their sums overflow

KVDIV_HOST_DEVICE inline double smaller(double x, double y) { return y < x ? y : x; }
KVDIV_HOST_DEVICE inline double larger(double x, double y) { return x < y ? y : x; }

/// The two largest logits of a row; `second` is the largest one below `first`, however often that occurs.
struct Top {
  double first = -kInf, second = -kInf;
  std::int64_t id = -1;
  bool tie = false;

  KVDIV_HOST_DEVICE void visit(std::int64_t i, double x) {
    if (!std::isnan(x)) merge({x, -kInf, i, false});
  }
  KVDIV_HOST_DEVICE void merge(const Top& other) {
    if (other.id < 0) return;
    if (id < 0) {
      *this = other;
    } else if (other.first > first) {
      second = larger(first, other.second);
      first = other.first;
      id = other.id;
      tie = other.tie;
    } else if (other.first == first) {
      second = larger(second, other.second);
      if (other.id < id) first = other.first, id = other.id;  // of 0.0 and −0.0, too, the one of the lowest id
      tie = true;
    } else {
      second = larger(second, other.first);
    }
  }
  KVDIV_HOST_DEVICE double margin() const {
    if (id < 0) return kNan;
    if (tie) return 0.0;
    return second == -kInf ? kInf : first - second;
  }
};

/// What one look at the two rows tells.
struct Scan {
  Top on, off;
  double low = kInf, high = -kInf;  // smallest and largest a − b of tokens finite in both rows
  std::int64_t n_nonfinite = 0;
  bool bit_equal = true, no_logit = false, one_sided = false;

  /// `same_bits` is the caller's to tell: a conversion to double may change a NaN.
  KVDIV_HOST_DEVICE void visit(std::int64_t i, double a, double b, bool same_bits) {
    on.visit(i, a);
    off.visit(i, b);
    bit_equal = bit_equal && same_bits;
    const bool finite_on = std::isfinite(a), finite_off = std::isfinite(b);
    n_nonfinite += static_cast<std::int64_t>(!finite_on) + static_cast<std::int64_t>(!finite_off);
    if ((finite_on && std::fabs(a) > kHuge) || (finite_off && std::fabs(b) > kHuge)) no_logit = true;
    if (finite_on && finite_off) {
      low = smaller(low, a - b);
      high = larger(high, a - b);
    } else if (std::isnan(a) || a == kInf || std::isnan(b) || b == kInf) {
      no_logit = true;
    } else {
      one_sided = one_sided || finite_on != finite_off;
    }
  }
  KVDIV_HOST_DEVICE void merge(const Scan& other) {
    on.merge(other.on);
    off.merge(other.off);
    low = smaller(low, other.low);
    high = larger(high, other.high);
    n_nonfinite += other.n_nonfinite;
    bit_equal = bit_equal && other.bit_equal;
    no_logit = no_logit || other.no_logit;
    one_sided = one_sided || other.one_sided;
  }

  /// Largest |a − b| of tokens finite in both rows.
  KVDIV_HOST_DEVICE double finite_max() const { return larger(larger(0.0, high), -low); }
  KVDIV_HOST_DEVICE bool has_softmax() const {
    return !no_logit && on.first > -kInf && off.first > -kInf && finite_max() <= kHuge;
  }
  /// Else there is nothing to sum: equal rows are exactly 0 apart, and rows without a softmax NaN.
  KVDIV_HOST_DEVICE bool has_divergences() const { return has_softmax() && !bit_equal; }
  /// Every token is finite in both rows or in neither, and all differences are within kNarrow of their mean.
  KVDIV_HOST_DEVICE bool is_narrow() const { return !one_sided && high - low <= kNarrow; }

  /// Everything but the divergences, which are 0, or NaN without a softmax.
  KVDIV_HOST_DEVICE StepMetrics metrics() const {
    StepMetrics m;
    m.bit_equal = bit_equal;
    m.n_nonfinite = n_nonfinite;
    m.margin_on = on.margin();
    m.margin_off = off.margin();
    m.tie_on = on.tie;
    m.tie_off = off.tie;
    m.top1_on = on.id;
    m.top1_off = off.id;
    m.top1_equal = has_softmax() && on.id == off.id;
    m.max_abs_dlogit = !has_softmax() ? kNan : one_sided ? kInf : finite_max();
    if (!has_softmax()) m.kl_on_off_nats = m.kl_off_on_nats = m.js_nats = kNan;
    return m;
  }
};

struct SumOfExponentials {
  CompensatedSum sum;

  /// Returns e^(x − max), which is 0 for −inf.
  KVDIV_HOST_DEVICE double visit(double x, double max) {
    const double e = std::exp(x - max);
    sum.add(e);
    return e;
  }
  KVDIV_HOST_DEVICE void merge(const SumOfExponentials& other) { sum.merge(other.sum); }
};

struct Softmax {
  double max = 0.0, sum = 1.0, log_sum = 0.0;

  KVDIV_HOST_DEVICE static Softmax of(double max, const SumOfExponentials& e) {
    return {max, e.sum.value(), std::log(e.sum.value())};
  }
  KVDIV_HOST_DEVICE double p(double x) const { return std::exp(x - max) / sum; }
  KVDIV_HOST_DEVICE double log_p(double x) const { return x - max - log_sum; }
};

struct MeanDifference {
  CompensatedSum sum;

  KVDIV_HOST_DEVICE void visit(double p, double a, double b) {
    if (std::isfinite(a) && std::isfinite(b)) sum.add(p * (a - b));
  }
  KVDIV_HOST_DEVICE void merge(const MeanDifference& other) { sum.merge(other.sum); }
};

/// ln(q/p) = k − e with e = a − b − m and k = −ln E_p[exp(−e)]: no difference of two log-softmaxes, whose rounding
/// (1e-16 times the logits) would drown differences of that size.
struct Expectation {
  CompensatedSum first, rest;  // E[e] (0 but for rounding) and E[exp(−e) − 1 + e]

  KVDIV_HOST_DEVICE void visit(double p, double a, double b, double mean) {
    if (a == -kInf) return;
    const double e = metric_terms::centered(a, b, mean);
    first.add(p * e);
    rest.add(p * metric_terms::expm1_minus_x(-e));
  }
  KVDIV_HOST_DEVICE void merge(const Expectation& other) {
    first.merge(other.first);
    rest.merge(other.rest);
  }
  KVDIV_HOST_DEVICE double k() const { return -std::log1p(rest.value() - first.value()); }
};

struct Divergences {
  CompensatedSum kl, reverse, js;
  bool kl_infinite = false, reverse_infinite = false;

  /// Rows with Scan::is_narrow().
  KVDIV_HOST_DEVICE void visit_narrow(double p, double a, double b, double mean, double k) {
    if (a == -kInf) return;
    const double t = k - metric_terms::centered(a, b, mean);
    const bool near = std::fabs(t) <= metric_terms::kNear;
    add(p, p * (near ? 1.0 + (t + metric_terms::expm1_minus_x(t)) : std::exp(t)), t);
  }
  /// Any rows that have a softmax. Differences of this size are far above the rounding of the log-softmaxes.
  KVDIV_HOST_DEVICE void visit_wide(double p, double q, double a, double b, const Softmax& of_a, const Softmax& of_b) {
    const bool dead_on = a == -kInf, dead_off = b == -kInf;
    if (dead_on && dead_off) return;
    if (dead_on || dead_off) {
      kl_infinite = kl_infinite || dead_off;
      reverse_infinite = reverse_infinite || dead_on;
      add_one_sided(p, q);
    } else {
      add(p, q, of_b.log_p(b) - of_a.log_p(a));
    }
  }
  KVDIV_HOST_DEVICE void merge(const Divergences& other) {
    kl.merge(other.kl);
    reverse.merge(other.reverse);
    js.merge(other.js);
    kl_infinite = kl_infinite || other.kl_infinite;
    reverse_infinite = reverse_infinite || other.reverse_infinite;
  }
  KVDIV_HOST_DEVICE void put(StepMetrics& m) const {
    m.kl_on_off_nats = kl_infinite ? kInf : larger(0.0, kl.value());
    m.kl_off_on_nats = reverse_infinite ? kInf : larger(0.0, reverse.value());
    m.js_nats = smaller(larger(js.value(), 0.0), std::numbers::ln2);
  }

 private:
  /// One token with p, q and t = ln(q/p), any of p and q possibly underflown to 0.
  KVDIV_HOST_DEVICE void add(double p, double q, double t) {
    // Far: nothing cancels, and e^t may overflow where p underflows.
    const bool far = std::fabs(t) > metric_terms::kExpRange;
    kl.add(far ? q - p - p * t : p * metric_terms::expm1_minus_x(t));
    reverse.add(far ? p - q + q * t : q * metric_terms::expm1_minus_x(-t));
    js.add(0.5 * (p + q) * metric_terms::js_term(t));
  }
  /// A token that has probability in one row only.
  KVDIV_HOST_DEVICE void add_one_sided(double p, double q) {
    // The term q − p, or p − q, of the direction that stays finite. (Not one sum chosen by reference: a GPU would keep
    // both in memory.)
    if (p > q)
      reverse.add(p + q);
    else
      kl.add(p + q);
    js.add(0.5 * (p + q) * std::numbers::ln2);
  }
};

}  // namespace kvdiv::metric_passes
