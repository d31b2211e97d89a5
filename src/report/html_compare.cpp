// Two reports side by side: what was set otherwise, and what differs by more than its intervals.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "html_data.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

struct Interval {
  double value = 0.0, low = 0.0, high = 0.0;
};

std::optional<Interval> interval_of(const Json& v, const char* value, const char* low, const char* high) {
  const Json &a = at_path(v, value), &b = at_path(v, low), &c = at_path(v, high);
  if (!a.is_number() || !b.is_number() || !c.is_number()) return std::nullopt;
  return Interval{a.get<double>(), b.get<double>(), c.get<double>()};
}

/// What a row of a list is of: "layer 3, what k". Lists of one experiment have the same rows in any order.
std::string row_name(const Json& row) {
  static const std::set<std::string> numbered{"layer", "step",   "head", "kv_head", "length",       "size",
                                              "R",     "offset", "bits", "chunk",   "mantissa_bits"};
  std::string out;
  for (const auto& [key, v] : row.items())
    if (v.is_string() || (v.is_number() && numbered.contains(key)))
      out += (out.empty() ? "" : ", ") + key + " " + (v.is_string() ? v.get<std::string>() : v.dump());
  return out;
}

/// Every stat and every interval below a value, by its path.
void collect(const Json& v, const std::string& path, std::map<std::string, Interval>& out) {
  if (v.is_array()) {
    for (const Json& row : v)
      if (row.is_object()) collect(row, path + " [" + row_name(row) + "]", out);
    return;
  }
  if (!v.is_object()) return;
  auto found = interval_of(v, "mean", "ci_low", "ci_high");
  if (!found) found = interval_of(v, "value", "low", "high");
  if (found) {
    out.emplace(path, *found);
    return;
  }
  for (const auto& [key, member] : v.items()) collect(member, path.empty() ? key : path + "." + key, out);
}

/// Settings as "experiment.params.limit" → "6".
void flatten(const Json& v, const std::string& path, std::map<std::string, std::string>& out) {
  if (!v.is_object()) {
    out[path] = short_dump(v, 160);
    return;
  }
  for (const auto& [key, member] : v.items()) flatten(member, path + "." + key, out);
}

std::map<std::string, std::string> settings_of(const Json& report) {
  std::map<std::string, std::string> out;
  for (const char* key : {"tool", "environment", "numerics", "model", "data"}) flatten(at_path(report, key), key, out);
  flatten(at_path(report, "experiment.name"), "experiment.name", out);
  flatten(at_path(report, "experiment.params"), "experiment.params", out);
  return out;
}

Json different_settings(const Json& a, const Json& b) {
  auto in_a = settings_of(a), in_b = settings_of(b);
  Json out = Json::array();
  std::set<std::string> keys;
  for (const auto* side : {&in_a, &in_b})
    for (const auto& [key, value] : *side) keys.insert(key);
  for (const std::string& key : keys)
    if (in_a[key] != in_b[key]) out.push_back({{"key", key}, {"a", in_a[key]}, {"b", in_b[key]}});
  return out;
}

std::map<std::string, const Json*> conditions_of(const Json& report) {
  std::map<std::string, const Json*> out;
  for (const Json& c : at_path(report, "conditions")) out.emplace(condition_label(c), &c);
  return out;
}

struct Difference {
  std::string condition, quantity;
  Interval a, b;
  /// The gap between the intervals, in widths of the two together; infinite where both are points.
  double size() const {
    const double gap = std::max(a.low - b.high, b.low - a.high), width = (a.high - a.low) + (b.high - b.low);
    return gap / width;
  }
};

Json triple(const Interval& i) { return {i.value, i.low, i.high}; }

}  // namespace

Json page_differences(const Json& a, const Json& b) {
  const auto in_a = conditions_of(a), in_b = conditions_of(b);
  Json out = {{"settings", different_settings(a, b)}, {"only_in_a", Json::array()}, {"only_in_b", Json::array()}};
  for (const auto& [label, c] : in_b)
    if (!in_a.contains(label)) out["only_in_b"].push_back(label);
  std::vector<Difference> different;
  std::size_t n_compared = 0;
  for (const auto& [label, c] : in_a) {
    const auto other = in_b.find(label);
    if (other == in_b.end()) {
      out["only_in_a"].push_back(label);
      continue;
    }
    std::map<std::string, Interval> of_a, of_b;
    collect(*c, "", of_a);
    collect(*other->second, "", of_b);
    for (const auto& [quantity, x] : of_a) {
      const auto it = of_b.find(quantity);
      if (it == of_b.end()) continue;
      ++n_compared;
      const Interval& y = it->second;
      if (x.high < y.low || y.high < x.low) different.push_back({label, quantity, x, y});
    }
  }
  std::stable_sort(different.begin(), different.end(),
                   [](const Difference& x, const Difference& y) { return x.size() > y.size(); });
  out["n_compared"] = n_compared;
  out["n_different"] = different.size();
  out["quantities"] = Json::array();
  for (std::size_t i = 0; i < std::min(different.size(), kMaxDifferences); ++i)
    out["quantities"].push_back({{"condition", different[i].condition},
                                 {"quantity", different[i].quantity},
                                 {"a", triple(different[i].a)},
                                 {"b", triple(different[i].b)}});
  return out;
}

}  // namespace kvdiv
