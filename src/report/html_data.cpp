#include "html_data.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "html_records.h"
#include "kvdiv/report/records_reader.h"
#include "kvdiv/report/result_directory.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string, std::less<>>;

/// Lists of rows that are drawn, by experiment. All other lists of a condition stand in the tables.
const Names& drawn_rows(const std::string& experiment) {
  static const std::map<std::string, Names> drawn{
      {"drift", {"by_layer", "by_head"}},
      {"trace", {"kv_by_layer", "by_step"}},
      {"patch", {"by_layer"}},
      {"noise", {"curve", "thresholds"}},
      {"mitigate", {"remedies"}},
      {"falsify", {"dot", "propagation", "rerun"}},
      {"boundary", {"calibration", "margins"}},
  };
  static const Names none;
  const auto it = drawn.find(experiment);
  return it == drawn.end() ? none : it->second;
}

bool has(const Json& v, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return v.contains(key); });
}

/// Stats and intervals without the fields that nothing draws.
Json slim(const Json& v) {
  static const Names undrawn_of_stat{"std", "p1", "ci_method"},
      undrawn_of_interval{"method", "n_clusters", "n_undefined"};
  if (v.is_array()) {
    Json out = Json::array();
    for (const Json& item : v) out.push_back(slim(item));
    return out;
  }
  if (!v.is_object()) return v;
  const bool is_stat = has(v, {"n", "mean", "ci_low", "p1"}), is_interval = has(v, {"value", "low", "high"});
  Json out = Json::object();
  for (const auto& [key, member] : v.items())
    if (!(is_stat && undrawn_of_stat.contains(key)) && !(is_interval && undrawn_of_interval.contains(key)))
      out[key] = slim(member);
  return out;
}

bool is_list_of_rows(const Json& v) { return v.is_array() && !v.empty() && v.front().is_object(); }

Json slim_condition(const Json& condition, const Names& drawn) {
  if (!condition.is_object()) return condition;
  Json out = Json::object();
  for (const auto& [key, member] : condition.items())
    if (!is_list_of_rows(member) || drawn.contains(key)) out[key] = slim(member);
  return out;
}

Json slim_conditions(const Json& conditions, const std::string& experiment) {
  Json out = Json::array();
  if (!conditions.is_array()) return out;
  for (const Json& c : conditions) out.push_back(slim_condition(c, drawn_rows(experiment)));
  return out;
}

}  // namespace

std::string condition_label(const Json& c) {
  if (!c.is_object()) return "";
  if (const auto it = c.find("condition"); it != c.end() && it->is_string()) return it->get<std::string>();
  std::string out;
  for (const char* key : {"part", "dtype", "backend", "strategy"})
    if (const auto it = c.find(key); it != c.end() && it->is_string())
      out += (out.empty() ? "" : "/") + it->get<std::string>();
  return out;
}

Json slim_report(const Json& report) {
  Json out = Json::object();
  std::string experiment;
  if (const auto it = report.find("experiment"); it != report.end() && it->is_object())
    experiment = it->value("name", Json("")).is_string() ? it->value("name", "") : "";
  for (const auto& [key, member] : report.items()) {
    if (key == "conditions") {
      out[key] = slim_conditions(member, experiment);
    } else if (key == "experiments" && member.is_object()) {
      for (const auto& [name, part] : member.items()) {
        out[key][name] = Json::object();
        if (part.is_object() && part.contains("conditions"))
          out[key][name]["conditions"] = slim_conditions(part["conditions"], name);
      }
    } else if (key == "data" && member.is_object()) {
      out[key] = member;
      if (const auto it = member.find("indices"); it != member.end() && it->size() > 24) out[key].erase("indices");
    } else {
      out[key] = slim(member);
    }
  }
  return out;
}

Json page_result(const fs::path& path, const Json& report) {
  if (!report.is_object()) return {{"name", path.string()}, {"report", Json::object()}, {"tables", Json::array()}};
  Json out = {{"name", path.string()},
              {"report", slim_report(report)},
              {"tables", page_tables(report)},
              {"records", nullptr},
              {"note", ""}};
  std::error_code ignored;
  const fs::path records = path / kRecordsFile;
  if (!fs::is_directory(path, ignored)) {
    out["note"] = "Made from report.json alone: what needs the records of each step is not shown.";
  } else if (!fs::exists(records, ignored)) {
    out["note"] = "There is no records.jsonl: what needs the records of each step is not shown.";
  } else if (Json aggregates = aggregate_records(records); !aggregates.empty()) {
    out["records"] = std::move(aggregates);
  }
  return out;
}

}  // namespace kvdiv
