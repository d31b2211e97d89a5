#include "trace_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "kvdiv/base/fields.h"

namespace kvdiv {
namespace {

std::string number(const Json& value) { return value.is_number() ? fmt::format("{:.2g}", value.get<double>()) : "–"; }

/// A BootstrapInterval.
std::string interval(const Json& i) {
  if (!i["low"].is_number()) return number(i["value"]);
  return fmt::format("{} [{}, {}]", number(i["value"]), number(i["low"]), number(i["high"]));
}

bool is_nothing(const Json& first_born) { return first_born["operation"] == "none"; }
bool came_with_cache(const Json& first_born) {
  return first_born["operation"] == "stored_keys" || first_born["operation"] == "stored_values";
}

/// Where the first difference of a step is, and how often of how many.
std::string birth(const Json& condition) {
  std::int64_t n = 0, n_cache = 0, n_nothing = 0;
  const Json* most = nullptr;
  for (const Json& row : condition["first_born"]) {
    const auto here = row["n"].get<std::int64_t>();
    n += here;
    if (is_nothing(row))
      n_nothing += here;
    else if (came_with_cache(row))
      n_cache += here;
    else if (most == nullptr)
      most = &row;
  }
  if (n_nothing == n) return fmt::format("no operation makes a difference at any of {} prompts × steps", n);
  std::string out =
      fmt::format("the first difference of a step came with the cache at {} of {} prompts × steps", n_cache, n);
  if (most != nullptr)
    out += fmt::format(" and is born most often in {} of layer {} ({})", (*most)["operation"].get<std::string>(),
                       (*most)["layer"].get<std::int64_t>(), (*most)["n"].get<std::int64_t>());
  return out;
}

/// Errors of all positions at the last traced step.
std::string sizes(const Json& condition) {
  const Json* last = nullptr;
  for (const Json& row : condition["kv"])
    if (row["positions"] == "all") last = &row;
  if (last == nullptr) return "";
  const auto mean = [&](const char* quantity) { return number((*last)[quantity]["mean"]); };
  return fmt::format("; relative error at step {} of K: ON/OFF {}, ON/FP64 {}, OFF/FP64 {}; of V: {}, {}, {}",
                     (*last)["step"].get<std::int64_t>(), mean("k_on_off"), mean("k_on_fp64"), mean("k_off_fp64"),
                     mean("v_on_off"), mean("v_on_fp64"), mean("v_off_fp64"));
}

std::string growth(const Json& condition) {
  for (const Json& row : condition["growth"])
    if (row["quantity"] == "k_on_off" && row["of"] == "newest" && row["layer"] == "all" &&
        row["slope"]["value"].is_number())
      return fmt::format("; log10 of K's ON/OFF error changes by {} a step", interval(row["slope"]));
  return "";
}

std::string shared_heads(const Json& conditions) {
  std::string out;
  for (const Json& condition : conditions)
    for (const Json& row : condition.value("gqa", Json::array()))
      if (row["R"] != 1)
        out += fmt::format("{} {} at R = {} (√R: {:.2f})", out.empty() ? "" : ",", interval(row["amplification"]),
                           row["R"].get<std::int64_t>(), row["sqrt_r"].get<double>());
  return out.empty() ? out
                     : " That query heads share keys and values multiplies the effect of their errors by" + out + ".";
}

std::string failed(const TraceControls& controls) {
  std::string out;
  const Json each = to_json_value(controls);
  for (const auto& [name, holds] : each.items())
    if (holds.is_boolean() && !holds.get<bool>()) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Json trace_verdict(const Json& conditions, const TraceControls& controls) {
  if (!controls.all_hold())
    return {{"kind", "invalid"}, {"sentence", "The measurement is invalid: control failed: " + failed(controls) + "."}};
  std::string kind = "none", sentence;
  for (const Json& c : conditions) {
    const Json& rows = c["first_born"];
    if (!std::all_of(rows.begin(), rows.end(), is_nothing)) kind = "born";
    sentence += fmt::format("{}{}/{}: ", sentence.empty() ? "" : " ", c["dtype"].get<std::string>(),
                            c["backend"].get<std::string>());
    sentence += rows.empty() ? "no text reached a traced step." : birth(c) + sizes(c) + growth(c) + ".";
  }
  return {{"kind", kind}, {"sentence", sentence + shared_heads(conditions)}};
}

}  // namespace kvdiv
