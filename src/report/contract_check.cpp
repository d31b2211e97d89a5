#include "kvdiv/report/contract_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

std::optional<double> number_at(const Json& j, const std::string& path) {
  const Json& v = at_path(j, path);
  return v.is_number() ? std::optional(v.get<double>()) : std::nullopt;
}

/// None for what is no condition's state but a number to read.
std::optional<bool> control_holds(const Json& control) {
  if (control.is_boolean()) return control.get<bool>();
  if (!control.is_object() || !control.contains("expected")) return std::nullopt;
  return at_path(control, "expected") == at_path(control, "computed");
}

const Json& conditions_of(const Json& report) {
  static const Json none = Json::array();
  const Json& conditions = at_path(report, "conditions");
  return conditions.is_array() ? conditions : none;  // an interrupted run may not have got that far
}

bool applies(const Limit& limit, const Json& condition) {
  const auto is = [&](const char* key, std::string_view name) { return at_path(condition, key) == name; };
  return is("dtype", name_of(limit.dtype)) && (!limit.backend || is("backend", *limit.backend)) &&
         (!limit.strategy || is("strategy", name_of(*limit.strategy)));
}

/// Why the condition has too little for the limit; empty if it has enough.
std::string shortage(const Contract& contract, const Json& condition, const Json& steps, const std::string& clock) {
  const auto few = [](const Json& j, const char* key, std::int64_t minimum, const std::string& place) -> std::string {
    if (minimum == 0) return {};
    const auto n = as_integer(at_path(j, key));
    if (!n) return fmt::format("{}{} is not in the report, the contract asks for {}", place, key, minimum);
    return *n < minimum ? fmt::format("{}{} is {}, the contract asks for {}", place, key, *n, minimum) : "";
  };
  const std::string pairs = few(condition, "n_pairs", contract.min_pairs, "");
  return pairs.empty() ? few(steps, "n_steps", contract.min_steps, clock + ".") : pairs;
}

/// Fills in what was measured, and why it may not be judged.
void measure_limit(const Contract& contract, const Limit& limit, const Json& condition, LimitResult& result) {
  const std::string clock(name_of(limit.clock.value_or(LimitClock::same_prefix)));
  const Json& steps = at_path(condition, clock);
  const LimitMetric& m = *limit.metric;
  const Json& metric = at_path(m.is_per_step ? steps : condition, std::string(m.path));
  const Json& value = m.is_stat ? at_path(metric, limit.statistic) : metric;
  if (value.is_number()) result.measured = value.get<double>();
  if (limit.statistic == "mean") result.ci_high = number_at(metric, "ci_high");
  if (m.is_per_step && !steps.is_object()) {
    result.why = fmt::format("{} is not in the report: the run's --clock left it out", clock);
    return;
  }
  result.why = shortage(contract, condition, steps, clock);
  if (!result.why.empty()) return;
  if (const Json& n = at_path(metric, "n_nonfinite"); m.is_stat && !n.is_null() && n != 0)
    result.why = fmt::format("{} of its values are not finite", short_dump(n));
  else if (!value.is_number())
    result.why = fmt::format("{}{} is {}", m.path, m.is_stat ? "." + limit.statistic : "",
                             value.is_null() ? "null or not in the report" : "not a number");
}

void judge(const Contract& contract, const Json& condition, bool is_report_valid, LimitResult& result) {
  const Limit& limit = contract.limits[result.limit];
  measure_limit(contract, limit, condition, result);
  if (result.measured) result.tightest = round_outward(*result.measured, limit.is_at_most);
  if (result.why.empty() && !is_report_valid) result.why = "the report as a whole is invalid";
  if (!result.why.empty()) return;
  const bool holds = limit.is_at_most ? *result.measured <= limit.bound : *result.measured >= limit.bound;
  result.status = holds ? LimitStatus::ok : LimitStatus::violated;
}

std::size_t count_of(const ContractCheck& check, LimitStatus status) {
  return static_cast<std::size_t>(std::count_if(check.results.begin(), check.results.end(),
                                                [&](const LimitResult& r) { return r.status == status; }));
}

void conclude(const Contract& contract, ContractCheck& check) {
  const std::size_t n = check.results.size(), n_violated = count_of(check, LimitStatus::violated);
  const auto first = [&](LimitStatus status) {
    return std::find_if(check.results.begin(), check.results.end(), [&](const auto& r) { return r.status == status; });
  };
  const auto place = [&](const LimitResult& r) {
    return limit_name(contract.limits[r.limit]) + (r.condition.empty() ? "" : " of " + r.condition);
  };
  if (!check.problems.empty()) {
    check.sentence = fmt::format("The check is invalid: {}.", fmt::join(check.problems, "; "));
  } else if (const auto bad = first(LimitStatus::invalid); bad != check.results.end()) {
    check.sentence = fmt::format("The check is invalid: {} of {} limits could not be judged; {}: {}{}.",
                                 count_of(check, LimitStatus::invalid), n, place(*bad), bad->why,
                                 n_violated > 0 ? fmt::format(" (and {} violated)", n_violated) : "");
  } else if (const auto worst = first(LimitStatus::violated); worst != check.results.end()) {
    check.status = LimitStatus::violated;
    check.sentence = fmt::format("The contract is violated: {} of {} limits; {} is {}, allowed {}.", n_violated, n,
                                 place(*worst), *worst->measured, bound_text(contract.limits[worst->limit]));
  } else {
    check.status = LimitStatus::ok;
    check.sentence = fmt::format("The contract holds: {} of {} limits kept.", n, n);
  }
}

/// "; the report has float16/torch/greedy, …".
std::string conditions_there(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += (i > 0 ? ", " : "; the report has ") + names[i];
  return names.empty() ? "; the report has none" : out + (names.size() > kShown ? ", …" : "");
}

}  // namespace

double round_outward(double value, bool is_at_most) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const bool away_from_zero = (value > 0.0) == is_at_most;
  const double magnitude = std::abs(value);
  const std::string nearest = fmt::format("{:.1e}", magnitude);  // "d.de±x"
  int digits = 10 * (nearest[0] - '0') + (nearest[2] - '0');
  int exponent = std::atoi(nearest.c_str() + 4) - 1;
  const auto read = [&] { return std::strtod(fmt::format("{}e{}", digits, exponent).c_str(), nullptr); };
  if (away_from_zero && read() < magnitude) ++digits;  // 100 of the same exponent has two significant digits as well
  if (!away_from_zero && read() > magnitude) {
    if (digits == 10) {
      digits = 100;
      --exponent;
    }
    --digits;
  }
  const double rounded = read();
  return std::isfinite(rounded) ? std::copysign(rounded, value) : value;
}

std::vector<std::string> condition_names(const Json& report, const std::string& where) {
  std::vector<std::string> names;
  for (const Json& condition : conditions_of(report)) {
    std::string name;
    for (const char* key : {"dtype", "backend", "strategy"}) {
      const Json& part = at_path(condition, key);
      if (!part.is_string())
        fail_unreadable("{}: key conditions[{}].{}: expected a text, found {}; this is not a report of kvdiv run",
                        where, names.size(), key, short_dump(part));
      name += (name.empty() ? "" : "/") + part.get<std::string>();
    }
    names.push_back(std::move(name));
  }
  return names;
}

void require_run(const Json& report, const std::string& where) {
  const Json& experiment = at_path(report, "experiment.name");
  if (experiment != "run")
    fail_unreadable("{}: key experiment.name: expected \"run\", found {}; kvdiv check reads the result of kvdiv run",
                    where, short_dump(experiment));
}

std::vector<std::string> report_problems(const Json& report, const std::vector<std::string>& demanded_controls) {
  std::vector<std::string> out;
  if (at_path(report, "complete") != true) out.emplace_back("the run is not complete");
  const Json& kind = at_path(report, "verdict.kind");
  if (!kind.is_string())
    out.emplace_back("the report has no verdict");
  else if (kind == "invalid")
    out.emplace_back("the run's own verdict is invalid");
  const Json& controls = at_path(report, "controls");
  if (controls.is_object())
    for (const auto& [name, value] : controls.items())
      if (!control_holds(value).value_or(true)) out.push_back(fmt::format("the control {} failed", short_name(name)));
  for (const std::string& name : demanded_controls)
    if (!control_holds(at_path(controls, name)))
      out.push_back(fmt::format("the control {}, which the contract demands, is not in the report", name));
  return out;
}

ContractCheck check_contract(const Contract& contract, const Json& report, const std::string& where) {
  require_run(report, where);
  const Json& conditions = conditions_of(report);
  const std::vector<std::string> names = condition_names(report, where);
  ContractCheck check;
  check.problems = report_problems(report, contract.controls);
  for (std::size_t i = 0; i < contract.limits.size(); ++i) {
    const std::size_t n_before = check.results.size();
    for (std::size_t k = 0; k < names.size(); ++k) {
      if (!applies(contract.limits[i], conditions[k])) continue;
      check.results.push_back({i, names[k]});
      judge(contract, conditions[k], check.problems.empty(), check.results.back());
    }
    if (check.results.size() > n_before) continue;
    check.results.push_back({i, {}});
    check.results.back().why = "no condition of the report matches" + conditions_there(names);
  }
  conclude(contract, check);
  return check;
}

Json tightest_contract(const Contract& contract, const ContractCheck& check) {
  if (!check.problems.empty()) return nullptr;
  Json out = to_json(contract);
  for (std::size_t i = 0; i < contract.limits.size(); ++i) {
    const Limit& limit = contract.limits[i];
    const LimitResult* worst = nullptr;
    for (const LimitResult& r : check.results)
      if (r.limit == i && r.measured &&
          (worst == nullptr || (limit.is_at_most ? *r.measured > *worst->measured : *r.measured < *worst->measured)))
        worst = &r;
    if (worst == nullptr) continue;
    out["limits"][i][limit.is_at_most ? "at_most" : "at_least"] = *worst->tightest;
    out["limits"][i]["reason"] = fmt::format("measured {} ({}), rounded outward to two digits; before: {}, {}",
                                             *worst->measured, worst->condition, bound_text(limit), limit.reason);
  }
  return out;
}

}  // namespace kvdiv
