#include "kvdiv/stats/metrics.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/stats/metric_passes.h"

namespace kvdiv {
namespace {

using namespace metric_passes;
using Row = std::span<const double>;

Scan scan(Row on, Row off) {
  Scan s;
  for (std::size_t i = 0; i < on.size(); ++i)
    s.visit(static_cast<std::int64_t>(i), on[i], off[i],
            std::bit_cast<std::uint64_t>(on[i]) == std::bit_cast<std::uint64_t>(off[i]));
  return s;
}

/// A row's softmax, and the probabilities as Softmax::p() gives them: kept, as the passes ask for each several times.
struct Probabilities {
  std::vector<double> p;
  Softmax softmax;
};

Probabilities probabilities(Row logits, double max) {
  Probabilities out{std::vector<double>(logits.size()), {}};
  SumOfExponentials sum;
  for (std::size_t i = 0; i < logits.size(); ++i) out.p[i] = sum.visit(logits[i], max);
  out.softmax = Softmax::of(max, sum);
  for (double& p : out.p) p /= out.softmax.sum;
  return out;
}

Divergences narrow_divergences(Row on, Row off, const std::vector<double>& p) {
  MeanDifference difference;
  for (std::size_t i = 0; i < on.size(); ++i) difference.visit(p[i], on[i], off[i]);
  const double mean = difference.sum.value();
  Expectation expectation;
  for (std::size_t i = 0; i < on.size(); ++i) expectation.visit(p[i], on[i], off[i], mean);
  const double k = expectation.k();
  Divergences out;
  for (std::size_t i = 0; i < on.size(); ++i) out.visit_narrow(p[i], on[i], off[i], mean, k);
  return out;
}

Divergences wide_divergences(Row on, Row off, const Probabilities& p, const Probabilities& q) {
  Divergences out;
  for (std::size_t i = 0; i < on.size(); ++i) out.visit_wide(p.p[i], q.p[i], on[i], off[i], p.softmax, q.softmax);
  return out;
}

}  // namespace

StepMetrics compare_logits(std::span<const double> on, std::span<const double> off) {
  if (on.size() != off.size() || on.empty())
    fail(ErrorKind::internal, "compare_logits: expected two rows of one vocabulary, found {} and {} logits", on.size(),
         off.size());
  const Scan s = scan(on, off);
  StepMetrics m = s.metrics();
  if (!s.has_divergences()) return m;
  const Probabilities p = probabilities(on, s.on.first);
  const Divergences d =
      s.is_narrow() ? narrow_divergences(on, off, p.p) : wide_divergences(on, off, p, probabilities(off, s.off.first));
  d.put(m);
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
