// Two reports side by side: what was set otherwise, and what differs by more than its intervals.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "html_data.h"
#include "kvdiv/report/identity.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

struct Interval {
  double value = 0.0;
  std::optional<double> low, high;  ///< none: of one prompt, or of no method
  bool has_bounds() const { return low && high; }
};

std::optional<Interval> interval_of(const Json& v, const char* value, const char* low, const char* high) {
  const auto number = [&](const char* key) {
    const Json& member = at_path(v, key);
    return member.is_number() ? std::optional(member.get<double>()) : std::nullopt;
  };
  const auto middle = number(value);
  if (!middle || !v.contains(low) || !v.contains(high)) return std::nullopt;
  return Interval{*middle, number(low), number(high)};
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
    std::map<std::string, int> seen;
    for (const Json& row : v) {
      if (!row.is_object()) continue;
      const std::string name = row_name(row);
      const int n = ++seen[name];
      collect(row, path + " [" + name + (n > 1 ? " #" + std::to_string(n) : "") + "]", out);
    }
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

Json different_settings(const Json& a, const Json& b) {
  Json out = Json::array();
  for (const char* path : {"tool", "environment", "numerics", "model", "data", "experiment.name", "experiment.params"})
    for (const KeyDifference& d : key_differences(path, at_path(a, path), at_path(b, path)))
      out.push_back({{"key", d.key}, {"a", d.a}, {"b", d.b}});
  return out;
}

/// Every condition by its name; those of the parts of `paper` behind the name of the part.
std::map<std::string, const Json*> conditions_of(const Json& report) {
  std::map<std::string, const Json*> out;
  for (const Json& c : at_path(report, "conditions")) out.emplace(condition_label(c), &c);
  const Json& parts = at_path(report, "experiments");
  if (!parts.is_object()) return out;
  for (const auto& [part, content] : parts.items())
    for (const Json& c : at_path(content, "conditions")) out.emplace(part + " " + condition_label(c), &c);
  return out;
}

struct Difference {
  std::string condition, quantity;
  Interval a, b;
  double gap() const { return std::max(*a.low - *b.high, *b.low - *a.high); }
  /// The gap between the intervals, in widths of the two together; infinite where both are points.
  double size() const { return gap() / ((*a.high - *a.low) + (*b.high - *b.low)); }
};

/// What all pairs of conditions come to.
struct Comparison {
  std::int64_t n_compared = 0, n_without_interval = 0, n_in_one = 0;
  std::vector<Difference> different;

  void add(const std::string& condition, const Json& a, const Json& b) {
    std::map<std::string, Interval> of_a, of_b;
    collect(a, "", of_a);
    collect(b, "", of_b);
    std::int64_t n_shared = 0;
    for (const auto& [quantity, x] : of_a) {
      const auto it = of_b.find(quantity);
      if (it == of_b.end()) continue;
      ++n_shared;
      add(Difference{condition, quantity, x, it->second});
    }
    n_in_one += std::ssize(of_a) + std::ssize(of_b) - 2 * n_shared;
  }

 private:
  void add(Difference d) {
    if (!d.a.has_bounds() || !d.b.has_bounds()) {
      ++n_without_interval;
      return;
    }
    ++n_compared;
    if (d.gap() > 0.0) different.push_back(std::move(d));
  }
};

Json triple(const Interval& i) { return {i.value, i.low.value_or(i.value), i.high.value_or(i.value)}; }

}  // namespace

Json page_differences(const Json& a, const Json& b) {
  const auto in_a = conditions_of(a), in_b = conditions_of(b);
  Json out = {{"settings", different_settings(a, b)}, {"only_in_a", Json::array()}, {"only_in_b", Json::array()}};
  for (const auto& [label, c] : in_b)
    if (!in_a.contains(label)) out["only_in_b"].push_back(label);
  Comparison all;
  for (const auto& [label, c] : in_a) {
    if (const auto other = in_b.find(label); other != in_b.end())
      all.add(label, *c, *other->second);
    else
      out["only_in_a"].push_back(label);
  }
  std::stable_sort(all.different.begin(), all.different.end(),
                   [](const Difference& x, const Difference& y) { return x.size() > y.size(); });
  out["n_compared"] = all.n_compared;
  out["n_different"] = all.different.size();
  out["n_without_interval"] = all.n_without_interval;
  out["n_in_one"] = all.n_in_one;
  out["quantities"] = Json::array();
  for (std::size_t i = 0; i < std::min(all.different.size(), kMaxDifferences); ++i) {
    const Difference& d = all.different[i];
    out["quantities"].push_back(
        {{"condition", d.condition}, {"quantity", d.quantity}, {"a", triple(d.a)}, {"b", triple(d.b)}});
  }
  return out;
}

}  // namespace kvdiv
