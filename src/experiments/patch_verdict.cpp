#include "patch_verdict.h"

#include <fmt/format.h>

#include <string>

namespace kvdiv {
namespace {

/// The row of K and V of all positions, OFF's into ON, at the largest step: where K/V have had time to part.
const Json* row_of(const Json& condition, const std::string& what, const std::string& positions) {
  const Json* found = nullptr;
  for (const Json& row : condition["parts"])
    if (row["direction"] == "off_into_on" && row["what"] == what && row["positions"] == positions) found = &row;
  return found;
}

std::string share(const Json* row) {
  if (row == nullptr || !(*row)["pct_of_mean"]["value"].is_number()) return "–";
  const Json& p = (*row)["pct_of_mean"];
  std::string out = fmt::format("{:.1f} %", p["value"].get<double>());
  if (p["low"].is_number()) out += fmt::format(" [{:.1f}, {:.1f}]", p["low"].get<double>(), p["high"].get<double>());
  return out;
}

std::string describe(const Json& condition, const Json& kv) {
  if (!kv["pct_of_mean"]["value"].is_number())
    return fmt::format("{}/{}, step {}: nothing to recover, the mean KL is {:.2g} nats",
                       condition["dtype"].get<std::string>(), condition["backend"].get<std::string>(),
                       kv["step"].get<std::int64_t>(), kv["kl_base_nats"].get<double>());
  std::string out = fmt::format(
      "{}/{}, step {}: of the mean KL of {:.2g} nats, OFF's K and V in ON's cache remove {} (K alone {}, V alone {})",
      condition["dtype"].get<std::string>(), condition["backend"].get<std::string>(), kv["step"].get<std::int64_t>(),
      kv["kl_base_nats"].get<double>(), share(&kv), share(row_of(condition, "k", "all")),
      share(row_of(condition, "v", "all")));
  if (const Json* residual = row_of(condition, "residual", "newest"))
    out += fmt::format(", the newest token's residual stream up to the last block {}", share(residual));
  return out + "; all of it together leaves no bit";
}

/// By the whole interval, not by the estimate: a few prompts decide nothing.
std::string kind_of(const Json& share) {
  if (!share["value"].is_number()) return "none";
  if (!share["low"].is_number()) return "undecided";
  if (share["low"].get<double>() >= 50.0) return "kv";
  return share["high"].get<double>() < 50.0 ? "newest_token" : "undecided";
}

/// Where K and V of all positions were not asked for: what was.
std::string describe_parts(const Json& condition) {
  std::string out;
  for (const Json& row : condition["parts"]) {
    if (row["what"] == "all" || row["step"] == 0) continue;
    out += fmt::format("{}step {}, {} ({}), {}: {}", out.empty() ? "" : "; ", row["step"].get<std::int64_t>(),
                       row["what"].get<std::string>(), row["positions"].get<std::string>(),
                       row["direction"].get<std::string>(), share(&row));
  }
  return out;
}

}  // namespace

Json to_json(const PatchControls& c, const Json& conditions) {
  return {{"prefill_bit_equal", c.prefill_bit_equal},
          {"self_patch_bit_equal", c.self_patch_bit_equal},
          {"everything_recovers", c.everything_recovers},
          {"cumulative_equals_single", c.cumulative_equals_single},
          {"off_is_stateless", c.off_is_stateless},
          {"random_patch", conditions.empty() ? Json(nullptr) : conditions.front()["random_patch"]}};
}

Json patch_verdict(const Json& conditions, const PatchControls& c) {
  if (!c.all_hold()) {
    std::string failed;
    const Json each = to_json(c, Json::array());
    for (const auto& [name, holds] : each.items())
      if (holds.is_boolean() && !holds.get<bool>()) failed += (failed.empty() ? "" : ", ") + name;
    return {{"kind", "invalid"}, {"sentence", "The measurement is invalid: control failed: " + failed + "."}};
  }
  std::string kind = "none", sentence;
  for (const Json& condition : conditions) {
    const Json* kv = row_of(condition, "kv", "all");
    if (kv == nullptr) {
      if (const std::string parts = describe_parts(condition); !parts.empty()) {
        kind = kind == "none" ? "measured" : kind;
        sentence += "Share of the mean KL removed: " + parts + ". ";
      }
      continue;
    }
    const std::string here = kind_of((*kv)["pct_of_mean"]);
    kind = kind == "none" || kind == here ? here : here == "none" ? kind : "undecided";
    sentence += describe(condition, *kv) + ". ";
  }
  if (sentence.empty()) sentence = "Nothing was patched at a step from 1 on. ";
  sentence.pop_back();
  return {{"kind", kind}, {"sentence", sentence}};
}

}  // namespace kvdiv
