#include "kvdiv/report/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kvdiv/base/fields.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

using Names = std::vector<std::string>;

constexpr double kNoEnd = std::numeric_limits<double>::max();

constexpr std::array<LimitMetric, 12> kMetrics{{
    {"kl_on_off_nats", "kl_on_off_nats", true, true, 0.0, kNoEnd},
    {"kl_off_on_nats", "kl_off_on_nats", true, true, 0.0, kNoEnd},
    {"js_nats", "js_nats", true, true, 0.0, kNoEnd},
    {"max_abs_dlogit", "max_abs_dlogit", true, true, 0.0, kNoEnd},
    {"margin", "margin", true, true, 0.0, kNoEnd},
    {"flips", "flips", true, false, 0.0, kNoEnd},
    {"tie_flips", "tie_flips", true, false, 0.0, kNoEnd},
    {"flip_rate", "flip_rate", true, false, 0.0, 1.0},
    {"bit_equal_rate", "bit_equal_rate", true, false, 0.0, 1.0},
    {"divergence_rate", "divergence_rate", false, false, 0.0, 1.0},
    {"flip_index", "flip_index", false, true, 0.0, kNoEnd},
    {"accuracy_diff", "accuracy.diff", false, false, -1.0, 1.0},
}};

constexpr std::array<std::string_view, 11> kStatistics{"mean",   "std", "min", "p1",  "p5", "p25",
                                                       "median", "p75", "p95", "p99", "max"};

constexpr std::array<std::string_view, 7> kControls{
    "on_on_bit_equal",       "off_off_bit_equal",    "prefill_bit_equal",    "order_independent",
    "alignment_independent", "n_tokens_computed_on", "n_tokens_computed_off"};

template <NamedEnum E>
Names enum_names() {
  Names out;
  for (const auto& [value, name] : EnumNames<E>::values) out.emplace_back(name);
  return out;
}

Names metric_names() {
  Names out;
  for (const LimitMetric& m : kMetrics) out.emplace_back(m.name);
  return out;
}

std::string joined(const Names& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

/// An object of the contract: its keys are those that are listed, and messages say where a value stands.
class Object {
 public:
  /// `where`: of the whole contract the file's name, of what is in it "FILE: key limits[2]".
  Object(const Json& json, std::string where, const Names& keys, bool is_root = false)
      : json_(json), where_(std::move(where)), separator_(is_root ? ": key " : ".") {
    if (!json.is_object()) fail_json_type(where_, "an object", json);
    for (const auto& [key, value] : json.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail_unreadable("{}: unknown key '{}'{}; expected {}", where_, short_name(key), did_you_mean(key, keys),
                        joined(keys));
  }

  bool has(const char* key) const { return json_.contains(key); }

  const Json& required(const char* key, std::string_view meaning) const {
    const auto it = json_.find(key);
    if (it == json_.end()) fail_unreadable("{}: is missing: expected {}", path(key), meaning);
    return *it;
  }

  std::string path(const char* key) const { return where_ + separator_ + key; }

  std::string text(const char* key, std::string_view meaning) const {
    const Json& j = required(key, meaning);
    const bool is_blank =
        j.is_string() && j.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos;
    if (!j.is_string() || is_blank) fail_json_type(path(key), fmt::format("{}, not empty", meaning), j);
    return j.get<std::string>();
  }

  std::string one_of(const char* key, const Names& names) const {
    const Json& j = required(key, "one of " + joined(names));
    const bool is_text = j.is_string();
    if (is_text && std::find(names.begin(), names.end(), j.get<std::string>()) != names.end())
      return j.get<std::string>();
    fail_unreadable("{}: expected one of {}, found {}{}", path(key), joined(names), short_dump(j),
                    is_text ? did_you_mean(j.get<std::string>(), names) : "");
  }

  template <NamedEnum E>
  E named(const char* key) const {
    return *find_enum<E>(one_of(key, enum_names<E>()));
  }

  std::int64_t count(const char* key) const {
    const auto n = as_integer(json_.at(key));
    if (!n || *n < 1) fail_json_type(path(key), "an integer of at least 1", json_.at(key));
    return *n;
  }

 private:
  const Json& json_;
  std::string where_;
  const char* separator_;
};

const LimitMetric& metric_named(const std::string& name) {
  return *std::find_if(kMetrics.begin(), kMetrics.end(), [&](const LimitMetric& m) { return m.name == name; });
}

void read_minimum(const Json& json, const std::string& where, Contract& contract) {
  const Object minimum(json, where, {"n_pairs", "n_steps"});
  if (minimum.has("n_pairs")) contract.min_pairs = minimum.count("n_pairs");
  if (minimum.has("n_steps")) contract.min_steps = minimum.count("n_steps");
}

void read_controls(const Json& json, const std::string& where, Contract& contract) {
  if (!json.is_array()) fail_json_type(where, "a list of controls", json);
  const Names known(kControls.begin(), kControls.end());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string name = json[i].is_string() ? json[i].get<std::string>() : "";
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_unreadable("{}[{}]: expected one of {}, found {}{}", where, i, joined(known), short_dump(json[i]),
                      did_you_mean(name, known));
    contract.controls.push_back(name);
  }
}

void read_bound(const Json& json, const Object& object, const std::string& where, Limit& limit) {
  if (object.has("at_most") == object.has("at_least"))
    fail_unreadable("{}: expected either at_most or at_least, found {}", where,
                    object.has("at_most") ? "both: make it two limits" : "none of them");
  limit.is_at_most = object.has("at_most");
  const char* const key = limit.is_at_most ? "at_most" : "at_least";
  const Json& bound = json.at(key);
  if (!bound.is_number()) fail_json_type(object.path(key), "a number", bound);
  limit.bound = bound.get<double>();
  const LimitMetric& m = *limit.metric;
  if (limit.bound < m.lowest || limit.bound > m.highest)
    fail_unreadable("{}: expected a number {}, found {}: {} cannot be there", object.path(key),
                    m.highest == kNoEnd ? fmt::format("of at least {}", m.lowest)
                                        : fmt::format("from {} to {}", m.lowest, m.highest),
                    short_dump(bound), m.name);
}

Limit read_limit(const Json& json, const std::string& where) {
  const Object object(
      json, where, {"dtype", "clock", "backend", "strategy", "metric", "statistic", "at_most", "at_least", "reason"});
  Limit limit;
  limit.dtype = object.named<DType>("dtype");
  limit.metric = &metric_named(object.one_of("metric", metric_names()));
  if (limit.metric->is_per_step || object.has("clock")) limit.clock = object.named<LimitClock>("clock");
  if (object.has("backend")) limit.backend = object.text("backend", "a backend's name");
  if (object.has("strategy")) limit.strategy = object.named<Strategy>("strategy");
  if (limit.metric->is_stat)
    limit.statistic = object.one_of("statistic", Names(kStatistics.begin(), kStatistics.end()));
  else if (object.has("statistic"))
    fail_unreadable("{}: {} is one number and has no statistics; remove the key", object.path("statistic"),
                    limit.metric->name);
  read_bound(json, object, where, limit);
  limit.reason = object.text("reason", "a text that says why this number");
  return limit;
}

}  // namespace

std::span<const LimitMetric> limit_metrics() { return kMetrics; }
std::span<const std::string_view> limit_statistics() { return kStatistics; }
std::span<const std::string_view> run_controls() { return kControls; }

Contract parse_contract(const Json& json, const std::string& where) {
  // The schema first: whatever else is wrong with a file that is no contract is beside the point.
  const auto schema = json.is_object() ? json.find("schema") : json.end();
  if (!json.is_object() || schema == json.end() || *schema != kContractSchema)
    fail_unreadable("{}: key schema: expected \"{}\", found {}; this is not a contract for kvdiv check", where,
                    kContractSchema,
                    !json.is_object()      ? "no object"
                    : schema == json.end() ? "no such key"
                                           : short_dump(*schema));
  const Object object(json, where, {"schema", "title", "minimum", "controls", "limits"}, /*is_root=*/true);
  Contract contract;
  contract.title = object.text("title", "a text that names the contract");
  if (object.has("minimum")) read_minimum(json.at("minimum"), object.path("minimum"), contract);
  if (object.has("controls")) read_controls(json.at("controls"), object.path("controls"), contract);
  const Json& limits = object.required("limits", "a list of limits");
  if (!limits.is_array() || limits.empty() || limits.size() > kMaxLimits)
    fail_json_type(object.path("limits"), fmt::format("a list of 1 to {} limits", kMaxLimits), limits);
  for (std::size_t i = 0; i < limits.size(); ++i)
    contract.limits.push_back(read_limit(limits[i], fmt::format("{}[{}]", object.path("limits"), i)));
  return contract;
}

Contract parse_contract_text(std::string_view text, const std::string& where) {
  return parse_contract(parse_json(text, where), where);
}

Json to_json(const Contract& contract) {
  Json out = {{"schema", kContractSchema}, {"title", contract.title}};
  if (contract.min_pairs > 0) out["minimum"]["n_pairs"] = contract.min_pairs;
  if (contract.min_steps > 0) out["minimum"]["n_steps"] = contract.min_steps;
  if (!contract.controls.empty()) out["controls"] = contract.controls;
  for (const Limit& l : contract.limits) {
    Json limit = {{"dtype", name_of(l.dtype)}};
    if (l.clock) limit["clock"] = name_of(*l.clock);
    if (l.backend) limit["backend"] = *l.backend;
    if (l.strategy) limit["strategy"] = name_of(*l.strategy);
    limit["metric"] = l.metric->name;
    if (!l.statistic.empty()) limit["statistic"] = l.statistic;
    limit[l.is_at_most ? "at_most" : "at_least"] = l.bound;
    limit["reason"] = l.reason;
    out["limits"].push_back(std::move(limit));
  }
  return out;
}

std::string limit_name(const Limit& l) {
  std::string out(name_of(l.dtype));
  if (l.clock) out += fmt::format(" {}", name_of(*l.clock));
  out += fmt::format(" {}", l.metric->name);
  if (!l.statistic.empty()) out += " " + l.statistic;
  if (l.backend) out += " backend=" + *l.backend;
  if (l.strategy) out += fmt::format(" strategy={}", name_of(*l.strategy));
  return out;
}

std::string bound_text(const Limit& l) { return fmt::format("{} {}", l.is_at_most ? "≤" : "≥", l.bound); }

}  // namespace kvdiv
