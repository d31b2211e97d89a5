// A check for people and for programs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/report/contract_check.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/table.h"

namespace kvdiv {
namespace {

constexpr const char* kNone = "–";

std::string status_text(LimitStatus status) {
  return status == LimitStatus::violated ? "VIOLATED" : std::string(name_of(status));
}

/// Short, but never so short that a violated number looks like one that keeps the bound.
std::string measured_text(const Limit& limit, const LimitResult& r) {
  if (!r.measured) return kNone;
  const std::string text = fmt::format("{:.3g}", *r.measured);
  const double shown = std::strtod(text.c_str(), nullptr);
  const bool looks_kept = limit.is_at_most ? shown <= limit.bound : shown >= limit.bound;
  return looks_kept == (r.status == LimitStatus::ok) || r.status == LimitStatus::invalid
             ? text
             : fmt::format("{}", *r.measured);
}

/// A line for each reason why limits are invalid, with the first of them: a condition that is missing is one reason.
std::string reasons(const Contract& contract, const ContractCheck& check) {
  std::vector<std::pair<const LimitResult*, std::size_t>> first;
  for (const LimitResult& r : check.results) {
    if (r.why.empty()) continue;
    const auto same = std::find_if(first.begin(), first.end(), [&](const auto& f) { return f.first->why == r.why; });
    if (same == first.end())
      first.emplace_back(&r, 0);
    else
      ++same->second;
  }
  std::string out;
  for (const auto& [r, n_more] : first)
    out += fmt::format("  invalid: {}{}{}: {}\n", one_line(limit_name(contract.limits[r->limit])),
                       r->condition.empty() ? "" : " of " + one_line(r->condition),
                       n_more > 0 ? fmt::format(" and {} more", n_more) : "", one_line(r->why));
  return out;
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return out;
}

std::string render_text(const Contract& contract, const ContractCheck& check) {
  const auto optional_text = [](const std::optional<double>& v) { return v ? short_number(*v) : kNone; };
  TextTable table({"limit", "condition", "measured", "95 % upper end", "allowed", "tightest", ""});
  table.left(1).left(6);
  for (const LimitResult& r : check.results) {
    const Limit& limit = contract.limits[r.limit];
    table.row({one_line(limit_name(limit)), r.condition.empty() ? kNone : one_line(r.condition),
               measured_text(limit, r), optional_text(r.ci_high), bound_text(limit),
               r.tightest ? fmt::format("{}", *r.tightest) : kNone, status_text(r.status)});
  }
  std::string out = fmt::format("contract: {}\n{}", one_line(contract.title), table.str());
  if (check.problems.empty()) out += reasons(contract, check);
  for (const LimitResult& r : check.results)
    if (r.status == LimitStatus::violated)
      out +=
          fmt::format("  violated: {} of {}; the limit's reason: {}\n", one_line(limit_name(contract.limits[r.limit])),
                      one_line(r.condition), one_line(contract.limits[r.limit].reason));
  for (const std::string& problem : check.problems) out += fmt::format("  invalid: {}\n", one_line(problem));
  return out + "  " + one_line(check.sentence) + "\n";
}

Json to_json(const Contract& contract, const ContractCheck& check) {
  Json results = Json::array();
  for (const LimitResult& r : check.results) {
    const Limit& limit = contract.limits[r.limit];
    results.push_back({{"limit", r.limit},
                       {"name", limit_name(limit)},
                       {"condition", r.condition.empty() ? Json(nullptr) : Json(r.condition)},
                       {"status", name_of(r.status)},
                       {"measured", to_json_value(r.measured)},
                       {"ci_high", to_json_value(r.ci_high)},
                       {limit.is_at_most ? "at_most" : "at_least", limit.bound},
                       {"tightest", to_json_value(r.tightest)},
                       {"why", r.why.empty() ? Json(nullptr) : Json(r.why)}});
  }
  return {{"status", name_of(check.status)},
          {"sentence", check.sentence},
          {"problems", check.problems},
          {"results", std::move(results)}};
}

}  // namespace kvdiv
