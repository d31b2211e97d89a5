#pragma once
// Two reports of `run` on the same prompts: is the newer one worse? It needs tests of rates, so it is not in report/.
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/report/contract_check.h"
#include "kvdiv/report/junit.h"

namespace kvdiv {

/// An old number of 0.01 and a new one of 0.021 are a regression of a largest value, which has no interval of its own.
inline constexpr double kMaxFactor = 2.0;
/// Of the tests of rates, adjusted for how many there are.
inline constexpr double kRegressionP = 0.05;

/// A metric of a condition that both reports have. violated: it has regressed.
struct ComparedMetric {
  std::string condition, metric;
  LimitStatus status = LimitStatus::ok;
  std::optional<double> before = {}, now = {};
  std::string how = {};  ///< what decided, or why it could not be decided
};

struct Comparison {
  std::vector<std::string> problems;     ///< why the two cannot be compared at all
  std::vector<std::string> differences;  ///< of program, machine, numbers and settings: "environment.cpu: A, was B"
  std::vector<ComparedMetric> metrics;
  LimitStatus status = LimitStatus::invalid;
  std::string sentence;
};

/// Metrics of same-prefix steps, and divergence_rate. A metric has regressed if it is larger than before and
/// - mean KL: the two 95 % intervals of the mean do not overlap;
/// - flip_rate, divergence_rate: Fisher's exact test, two-sided, adjusted by Holm over all rates compared, gives p < 0.05;
/// - the largest |Δlogit|: it is more than twice as large, or the intervals of the mean |Δlogit| do not overlap.
/// A mean that is larger without intervals (one prompt) is invalid. The prompts must be the same: data.sha256, data.indices.
/// Throws Error{unreadable} for a report that is not of `run`.
Comparison compare_reports(const Json& now, const std::string& now_name, const Json& before,
                           const std::string& before_name);

Json to_json(const Comparison& comparison);
std::string render_text(const Comparison& comparison);
JUnitSuite junit_suite(const Comparison& comparison);

}  // namespace kvdiv
