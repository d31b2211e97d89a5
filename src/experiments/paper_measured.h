#pragma once
// What this run measured of each published quantity.
#include <fmt/format.h>

#include <functional>
#include <string>

#include "paper_parts.h"

namespace kvdiv {

struct Measured {
  std::string text;  ///< empty: not measured in this run
  std::string why;   ///< why it differs from the published value
};

Measured diverged_pairs(const PaperParts& p);
Measured kl_trend(const PaperParts& p);
Measured js(const PaperParts& p);
Measured accuracy(const PaperParts& p);
Measured by_prompt(const PaperParts& p);
Measured drift(const PaperParts& p);
Measured drift_prefill(const PaperParts& p);
Measured drift_tests(const PaperParts& p);
Measured dot_error(const PaperParts& p);
Measured dot_std(const PaperParts& p);
Measured propagation(const PaperParts& p);
Measured projection(const PaperParts& p);
Measured correlations(const PaperParts& p);
Measured fp32_flips(const PaperParts& p);
Measured fp32_kl(const PaperParts& p);
Measured fp32_ratio(const PaperParts& p);
Measured thirds(const PaperParts& p);
Measured partial(const PaperParts& p);
Measured conclusion(const PaperParts& p);
std::function<Measured(const PaperParts&)> kl_of(const char* strategy);
/// Residual patching over the whole text: `set` "single layer" or "layers 1…l", `key` "median" or "mean".
std::function<Measured(const PaperParts&)> pooled(const char* set, const char* key);

inline std::string num(const Json& v) { return v.is_number() ? fmt::format("{:.3g}", v.get<double>()) : "–"; }
inline std::string range(const Json& low, const Json& high) {
  return low.is_number() && high.is_number() ? fmt::format(" [{}, {}]", num(low), num(high)) : "";
}
inline std::string stat(const Json& s) { return num(s["mean"]) + range(s["ci_low"], s["ci_high"]); }
inline std::string interval(const Json& i) {
  return i.is_object() ? num(i["value"]) + range(i["low"], i["high"]) : std::string("–");
}

/// The first condition of an experiment that has a key.
inline const Json* having(const ExperimentResult& part, const char* key) {
  for (const Json& c : part.conditions)
    if (c.contains(key)) return &c[key];
  return nullptr;
}

inline const Json* row_where(const Json* rows, const char* key, const Json& value) {
  if (rows != nullptr)
    for (const Json& row : *rows)
      if (row[key] == value) return &row;
  return nullptr;
}

}  // namespace kvdiv
