// A comparison for people, for programs and for CI.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check_against.h"
#include "kvdiv/base/fields.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/table.h"

namespace kvdiv {
namespace {

/// A comparison that is invalid as a whole judges no metric.
LimitStatus status_of(const Comparison& c, const ComparedMetric& m) {
  return c.problems.empty() ? m.status : LimitStatus::invalid;
}

}  // namespace

Json to_json(const Comparison& c) {
  Json metrics = Json::array();
  for (const ComparedMetric& m : c.metrics)
    metrics.push_back({{"condition", m.condition},
                       {"metric", m.metric},
                       {"status", name_of(status_of(c, m))},
                       {"before", to_json_value(m.before)},
                       {"now", to_json_value(m.now)},
                       {"how", m.how}});
  return {{"status", name_of(c.status)},
          {"sentence", c.sentence},
          {"problems", c.problems},
          {"differences", c.differences},
          {"metrics", std::move(metrics)}};
}

std::string render_text(const Comparison& c) {
  TextTable table({"metric", "condition", "before", "now", "", ""});
  table.left(1).left(4).left(5);
  for (const ComparedMetric& m : c.metrics) {
    const LimitStatus status = status_of(c, m);
    table.row({m.metric, one_line(m.condition), short_number(to_json_value(m.before)),
               short_number(to_json_value(m.now)),
               status == LimitStatus::violated ? "REGRESSED" : std::string(name_of(status)), one_line(m.how)});
  }
  std::string out = "\n" + table.str();
  for (const std::string& difference : c.differences) out += fmt::format("  differs: {}\n", one_line(difference));
  return out + "  " + one_line(c.sentence) + "\n";
}

JUnitSuite junit_suite(const Comparison& c) {
  JUnitSuite suite{"kvdiv check --against", {}};
  std::string details;
  for (const std::string& difference : c.differences) details += "differs: " + difference + "\n";
  if (!c.problems.empty())
    suite.cases.push_back(
        {"the reports can be compared", LimitStatus::invalid, fmt::format("{}", fmt::join(c.problems, "; ")), details});
  for (const ComparedMetric& m : c.metrics) {
    const std::string numbers = m.now && m.before ? fmt::format("now {}, before {}: ", *m.now, *m.before) : "";
    suite.cases.push_back({fmt::format("{} [{}]", m.metric, m.condition), status_of(c, m), numbers + m.how, details});
  }
  return suite;
}

}  // namespace kvdiv
