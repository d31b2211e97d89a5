// Experiments 3 to 5.
#include "paper_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace kvdiv {

Measured dot_error(const PaperParts& p) {
  const Json* rows = having(p.falsify, "dot_over_lengths");
  const Json* both = row_where(rows, "column", "operands_and_stored");
  const Json* operands = row_where(rows, "column", "operands");
  const Json* sum = row_where(rows, "column", "sequential_float16");
  if (both == nullptr || operands == nullptr || sum == nullptr) return {"", "part dot was not run"};
  return {fmt::format("operands and stored result {} % (operands alone {} %), growth exponent {}; FP16 accumulation "
                      "grows with exponent {}",
                      num((*both)["mean_pct"]), num((*operands)["mean_pct"]), num((*both)["growth_exponent"]),
                      num((*sum)["growth_exponent"])),
          "storage rounding, not accumulation: √3 roundings, whatever the length"};
}

Measured dot_std(const PaperParts& p) {
  const Json* row = row_where(having(p.falsify, "dot_over_lengths"), "column", "operands_and_stored");
  if (row == nullptr) return {"", "part dot was not run"};
  return {fmt::format("{} % over the lengths", num((*row)["std_pct"])),
          "of RMS errors over 1,200 random products each"};
}

Measured propagation(const PaperParts& p) {
  const Json* rows = having(p.falsify, "growth");
  if (rows == nullptr || rows->empty()) return {"", "part propagation was not run"};
  const Json& row = rows->front();
  return {fmt::format("relative error ~ N^{} [{}, {}]", num(row["exponent"]), num(row["ci_low"]), num(row["ci_high"])),
          "it grows more slowly than a random walk (N^0.5): the state grows too"};
}

Measured projection(const PaperParts& p) {
  for (const Json& c : p.falsify.conditions) {
    if (c["part"] != "projection") continue;
    double k = 0.0, v = 0.0, rate = 0.0;
    for (const Json& row : c["by_layer"]) {
      k = std::max(k, row["k_max_ulp"].get<double>());
      v = std::max(v, row["v_max_ulp"].get<double>());
      rate = std::max({rate, row["k_differing_rate"].get<double>(), row["v_differing_rate"].get<double>()});
    }
    return {
        fmt::format("K up to {:.0f} ULP, V up to {:.0f} ULP; at most {:.2g} % of the numbers differ", k, v, 100 * rate),
        "a product of one row sums in another order than one of many; storing adds nothing"};
  }
  return {"", "part projection was not run"};
}

Measured correlations(const PaperParts& p) {
  std::string text;
  const Json* rows = having(p.boundary, "correlations");
  if (rows == nullptr) return {"", "no pairs"};
  for (const Json& c : p.boundary.conditions)
    for (const Json& row : c["correlations"]) {
      if (row["flips"] != "all flips" || row["unit"] != "prompts") continue;
      const Json& t = row["pearson"];
      if (!t["effect"].is_number()) continue;
      text += fmt::format("{}{}, {}: r {}{}, n {}, p {}", text.empty() ? "" : "; ", c["condition"].get<std::string>(),
                          row["kl"].get<std::string>(), num(t["effect"]), range(t["ci_low"], t["ci_high"]),
                          t["n"].dump(), num(t["p"]));
    }
  return {text.empty() ? "too few flips for a correlation" : text,
          "prompts are the samples, not their seeds; free-running KL is larger the earlier the texts part, by "
          "construction"};
}

namespace {

Measured fp32(const PaperParts& p, const char* key) {
  for (const Json& c : p.falsify.conditions) {
    if (!c.contains("rerun")) continue;
    std::string text;
    for (const Json& row : c["rerun"]) {
      if (row["condition"].get<std::string>().starts_with("float32/"))
        text +=
            fmt::format("{}{}: {}", text.empty() ? "" : "; ", row["condition"].get<std::string>(),
                        row[key].is_object() ? interval(row[key])
                                             : fmt::format("{} of {} steps", row[key].dump(), row["n_steps"].dump()));
    }
    return {text, ""};
  }
  return {"", "part fp32 was not run"};
}

}  // namespace

Measured fp32_flips(const PaperParts& p) {
  return {fp32(p, "flips").text, "agrees if 0: rounding in FP32 is 2^-13 of FP16's"};
}
Measured fp32_kl(const PaperParts& p) {
  std::string text = fp32(p, "kl_on_off_nats").text;
  if (const Json* floor = having(p.falsify, "fp32_metric"); floor != nullptr)
    text += fmt::format("; the same logits through an FP32 metric: {}", num((*floor)["mean_abs_kl_nats"]));
  return {text, "metric precision: 2.5e-8 is the floor of an FP32 metric, not of FP32 arithmetic"};
}
Measured fp32_ratio(const PaperParts& p) {
  return {fp32(p, "ratio_to_base").text,
          "same-prefix over same-prefix; the published ratio has free-running KL above and the metric's floor below"};
}

Measured thirds(const PaperParts& p) {
  std::string text;
  for (const Json& c : p.boundary.conditions)
    for (const Json& row : c["correlations"]) {
      if (row["flips"] != "all flips" || row["unit"] != "prompts" || !row["welch"]["p"].is_number()) continue;
      text += fmt::format("{}{}, {}: early − late {} nats, p {}", text.empty() ? "" : "; ",
                          c["condition"].get<std::string>(), row["kl"].get<std::string>(), num(row["welch"]["effect"]),
                          num(row["welch"]["p"]));
    }
  return {text.empty() ? "too few flips for two thirds" : text,
          "free-running: an early flip leaves more steps that compare two texts; see the same-prefix KL"};
}

Measured partial(const PaperParts& p) {
  std::string text;
  for (const Json& c : p.boundary.conditions)
    for (const Json& row : c["correlations"]) {
      if (row["unit"] != "prompts" || row["kl"] != "same-prefix" || !row["partial"]["effect"].is_number()) continue;
      text += fmt::format("{}{}, {}: {}", text.empty() ? "" : "; ", c["condition"].get<std::string>(),
                          row["flips"].get<std::string>(), num(row["partial"]["effect"]));
    }
  return {text.empty() ? "too few flips" : text, "given the pair's mean margin, on the same-prefix KL"};
}

std::function<Measured(const PaperParts&)> pooled(const char* set, const char* key) {
  return [set, key](const PaperParts& p) -> Measured {
    const Json* rows = having(p.patch, "published_pooled");
    if (rows == nullptr) return {"", "not run"};
    std::string text;
    for (const Json& row : *rows)
      if (row["set"] == set && row["step"].get<int>() <= 1)
        text += fmt::format("{}step {}: {} %", text.empty() ? "" : "; ", row["step"].dump(), interval(row[key]));
    return {text, "OFF has no state: a patch of one step cannot change another, whatever the cause"};
  };
}

Measured conclusion(const PaperParts& p) {
  const Json* rows = having(p.patch, "parts");
  std::string text;
  if (rows != nullptr)
    for (const Json& row : *rows)
      if (row["direction"] == "off_into_on" && row["step"] != 0 &&
          (row["positions"] == "all" || row["positions"] == "newest"))
        text += fmt::format(
            "{}step {}, {}{}: {} %", text.empty() ? "" : "; ", row["step"].dump(), row["what"].get<std::string>(),
            row["what"] == "residual" ? " " + row["layers"].get<std::string>() : "", interval(row["pct_of_mean"]));
  return {text, "measured directly here: share of the mean KL that OFF's values in ON remove"};
}

}  // namespace kvdiv
