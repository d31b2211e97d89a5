#include <fmt/format.h>

#include <string>

#include "kvdiv/base/fields.h"
#include "paper_parts.h"

namespace kvdiv {
namespace {

Json question(int experiment, const char* text, const char* unit, const Json& value, const Json& low, const Json& high,
              const ExperimentResult& part) {
  return {{"experiment", experiment},
          {"question", text},
          {"number", value},
          {"unit", unit},
          {"low", low},
          {"high", high},
          {"verdict", part.verdict["kind"]},
          {"sentence", part.verdict["sentence"]}};
}

Json of_stat(int experiment, const char* text, const char* unit, const Json& stat, const ExperimentResult& part) {
  return question(experiment, text, unit, stat["mean"], stat["ci_low"], stat["ci_high"], part);
}

Json of_interval(int experiment, const char* text, const char* unit, const Json& b, const ExperimentResult& part) {
  static const Json none = {{"value", nullptr}, {"low", nullptr}, {"high", nullptr}};
  const Json& i = b.is_object() ? b : none;
  return question(experiment, text, unit, i["value"], i["low"], i["high"], part);
}

/// The ratio of the mean KLs of the first condition, base over FP32.
Json fp32_ratio(const ExperimentResult& falsify) {
  for (const Json& c : falsify.conditions)
    if (c.contains("rerun"))
      for (const Json& row : c["rerun"])
        if (row["condition"].get<std::string>().starts_with("float32/")) return row["ratio_to_base"];
  return nullptr;
}

/// K and V of all positions, OFF's into ON, at the last patched step.
Json kv_share(const ExperimentResult& patch) {
  Json found = nullptr;
  if (patch.conditions.empty()) return found;
  for (const Json& row : patch.conditions.front()["parts"])
    if (row["direction"] == "off_into_on" && row["what"] == "kv" && row["positions"] == "all")
      found = row["pct_of_mean"];
  return found;
}

/// The share explained by margin in the first condition with a flip; where nothing flipped, the share of steps that could.
Json margin_question(const ExperimentResult& boundary) {
  constexpr const char* kQuestion = "Are flips decided by margins?";
  for (const Json& c : boundary.conditions)
    if (c["margins"]["flips"].get<std::int64_t>() > 0)
      return of_interval(4, kQuestion, "share of the changes of the largest logit at margin ≤ 2·max|Δlogit|",
                         c["margins"]["share_explained"], boundary);
  return of_interval(4, kQuestion, "the largest logit never changed; share of steps at which it could",
                     boundary.conditions.front()["margins"]["share_of_steps_that_can_flip"], boundary);
}

}  // namespace

Json paper_questions(const PaperParts& p) {
  Json out = Json::array();
  out.push_back(of_stat(1, "Do cache ON and OFF differ on the same prefix?", "mean KL(on‖off), nats",
                        p.run.conditions.front()["same_prefix"]["kl_on_off_nats"], p.run));
  const Json& layers = p.drift.conditions.front()["by_layer"];
  if (layers.size() >= 2)
    out.push_back(of_stat(2, "Does the difference explode over the layers?", "‖Δ‖/‖state‖ behind the last block",
                          layers[layers.size() - 2]["rel_l2"], p.drift));
  out.push_back(
      of_interval(3, "Does it vanish in FP32?", "mean KL here / mean KL in FP32", fp32_ratio(p.falsify), p.falsify));
  out.push_back(margin_question(p.boundary));
  out.push_back(of_interval(5, "Is the cause in K and V?", "% of the mean KL that OFF's K and V in ON's cache remove",
                            kv_share(p.patch), p.patch));
  return out;
}

}  // namespace kvdiv
