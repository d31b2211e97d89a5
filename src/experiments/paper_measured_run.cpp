// Experiments 1 and 2.
#include "paper_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace kvdiv {
namespace {

constexpr const char* kSamePrefix = "same prefix here; free-running in the paper compares two texts after the flip";
constexpr const char* kOtherModel = "another model; same token, same position, same prefix";

const Json* condition_of(const PaperParts& p, const std::string& strategy) {
  for (const Json& c : p.run.conditions)
    if (c["strategy"] == strategy) return &c;
  return nullptr;
}

}  // namespace

Measured diverged_pairs(const PaperParts& p) {
  std::int64_t n = 0;
  double diverged = 0.0;
  for (const Json& c : p.run.conditions) {
    const auto pairs = c["n_pairs"].get<std::int64_t>();
    n += pairs;
    diverged += c["divergence_rate"].get<double>() * static_cast<double>(pairs);
  }
  return {fmt::format("{:.0f} of {} pairs ({:.3g} %)", diverged, n, 100.0 * diverged / static_cast<double>(n)),
          "same-prefix rounding flips few tokens; greedy seeds are counted once (repeats are not samples)"};
}

std::function<Measured(const PaperParts&)> kl_of(const char* strategy) {
  return [strategy](const PaperParts& p) -> Measured {
    const Json* c = condition_of(p, strategy);
    if (c == nullptr) return {"", "this strategy was not run"};
    const Json& after = (*c)["after_flip"]["kl_on_off_nats"];
    std::string text = fmt::format("same prefix {}; free-running {}", stat((*c)["same_prefix"]["kl_on_off_nats"]),
                                   stat((*c)["free_running"]["kl_on_off_nats"]));
    if (after["mean"].is_number()) text += "; after the flip alone " + stat(after);
    return {text, kSamePrefix};
  };
}

Measured kl_trend(const PaperParts& p) {
  const Json* rows = having(p.boundary, "kl_over_steps");
  if (rows == nullptr || rows->empty()) return {"", "too few steps"};
  std::string text;
  for (const Json& row : *rows)
    text += fmt::format("{}steps {}: {}", text.empty() ? "" : "; ", row["steps"].get<std::string>(),
                        interval(row["kl_nats"]));
  return {text, "same prefix at every step: what is left is rounding of that step and of the stored K and V"};
}

Measured js(const PaperParts& p) {
  const Json& same = p.run.conditions.front()["same_prefix"]["js_nats"];
  return {fmt::format("same prefix {} nats, max {}", stat(same), num(same["max"])),
          "the bound is 1 in bits, ln 2 = 0.693 in nats"};
}

Measured accuracy(const PaperParts& p) {
  std::string text;
  for (const Json& c : p.run.conditions) {
    const Json& a = c["accuracy"];
    if (!a["on"].is_number()) continue;
    text +=
        fmt::format("{}{}: ON {:.3g} %, OFF {:.3g} %, n {}", text.empty() ? "" : "; ", c["strategy"].get<std::string>(),
                    100.0 * a["on"].get<double>(), 100.0 * a["off"].get<double>(), a["n"].get<std::int64_t>());
    if (c["mcnemar"].is_object()) text += ", adjusted p " + num(c["mcnemar"]["exact"]["p_adjusted"]);
  }
  return {text.empty() ? "no gold answers or no tokenizer" : text,
          "an advantage of the cache cannot come from rounding; repeats over seeds are not samples"};
}

Measured by_prompt(const PaperParts& p) {
  std::string text;
  for (const Json& c : p.run.conditions) {
    const Json& d = c["divergence_by_prompt"];
    text += fmt::format("{}{}: {} / {} / {}", text.empty() ? "" : "; ", c["strategy"].get<std::string>(),
                        d["always"].dump(), d["sometimes"].dump(), d["never"].dump());
  }
  return {text, "rounding flips a token only where the margin is small"};
}

Measured drift(const PaperParts& p) {
  const Json* layers = having(p.drift, "by_layer");
  if (layers == nullptr || layers->size() < 3) return {"", "no text reached the step"};
  const Json &first = (*layers)[1], &last = (*layers)[layers->size() - 2];
  std::string text = fmt::format("L2 {} behind layer 1, {} behind layer {} ({} of the norm)", stat(first["l2"]),
                                 stat(last["l2"]), last["layer"].dump(), num(last["rel_l2"]["mean"]));
  if (const Json* largest = having(p.drift, "largest_amplification"); largest != nullptr && largest->is_object())
    text += fmt::format(", at most ×{} from one layer to the next", num((*largest)["factor"]));
  return {text, kOtherModel};
}

Measured drift_prefill(const PaperParts& p) {
  const bool equal = p.drift.controls.value("prefill_bit_equal", false);
  return {equal ? "0 in all layers, bit for bit" : "NOT 0", equal ? "agrees" : "the measurement is invalid"};
}

Measured drift_tests(const PaperParts& p) {
  std::int64_t n = 0, significant = 0;
  for (const Json& c : p.drift.conditions)
    for (const Json& row : c["by_layer"]) {
      const Json& test = row["against_layer_before"];
      if (!test.is_object() || !test["p_adjusted"].is_number()) continue;
      ++n;
      significant += test["p_adjusted"].get<double>() < 0.05;
    }
  return {fmt::format("{} of {} layers", significant, n), "one model here; prompts are the samples"};
}

}  // namespace kvdiv
