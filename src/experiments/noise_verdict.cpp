#include <fmt/format.h>

#include "noise_summary.h"

namespace kvdiv {
namespace {

/// The first threshold row of this quantity and level; null without one.
const Json* row_of(const Json& condition, const std::string& what, const std::string& per, double level) {
  for (const Json& row : condition["thresholds"])
    if (row["what"] == what && row["per"] == per && row["level"] == level) return &row;
  return nullptr;
}

std::string with_interval(const Json& interval) {
  std::string out = fmt::format("{:.2g}", interval["value"].get<double>());
  if (interval["low"].is_number())
    out += fmt::format(" [{:.2g}, {:.2g}]", interval["low"].get<double>(), interval["high"].get<double>());
  return out;
}

std::string quantity(const std::string& what) {
  return what == "kv" ? "keys and values" : what == "k" ? "keys" : "values";
}

std::string describe(const Json& condition, const Json& row) {
  const std::string kind = row["kind"], what = row["what"];
  std::string out =
      fmt::format("{}/{}: ", condition["dtype"].get<std::string>(), condition["backend"].get<std::string>());
  const std::string noise = (kind == "gaussian" ? "Gaussian noise on the " : "rounding of the ") + quantity(what);
  if (!row["size"]["value"].is_number())
    return out + fmt::format("no size of {} at which 1 % of steps flip is in the range that was tried ({})", noise,
                             row["size"]["reason"].get<std::string>());
  out += fmt::format("1 % of steps flip at a relative size of {} of {}", with_interval(row["size"]), noise);
  if (row["in_fp16_computed"]["value"].is_number())
    out += fmt::format(
        ", {:.2g} times the error of the FP16 model's own {} and {:.2g} times that of storing them in FP16",
        row["in_fp16_computed"]["value"].get<double>(), quantity(what), row["in_fp16_stored"]["value"].get<double>());
  const Json* half = row_of(condition, what, "text", 0.5);
  if (half != nullptr && (*half)["size"]["value"].is_number())
    out += fmt::format("; half of the texts have a flip at {}", with_interval((*half)["size"]));
  return out;
}

}  // namespace

Json noise_verdict(const Json& conditions, const Json& controls) {
  std::string failed;
  for (const auto& [name, holds] : controls.items())
    if (holds == false) failed += (failed.empty() ? "" : ", ") + name;
  if (!failed.empty())
    return {{"kind", "invalid"}, {"sentence", "The measurement is invalid: control failed: " + failed + "."}};
  std::string sentence;
  for (const Json& condition : conditions)
    for (const char* what : {"kv", "k", "v"})  // both where they were asked for, else the first that was
      if (const Json* row = row_of(condition, what, "step", 0.01)) {
        sentence += (sentence.empty() ? "" : " ") + describe(condition, *row) + ".";
        break;
      }
  if (sentence.empty()) return {{"kind", "none"}, {"sentence", "No text went on behind its first token."}};
  return {{"kind", "measured"}, {"sentence", sentence}};
}

}  // namespace kvdiv
