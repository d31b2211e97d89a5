#include "falsify_verdict.h"

#include <fmt/format.h>

#include <string>

namespace kvdiv {
namespace {

const Json* part_of(const Json& conditions, const std::string& part, const std::string& key) {
  for (const Json& c : conditions)
    if (c["part"] == part && c.contains(key)) return &c;
  return nullptr;
}

std::string dot_sentence(const Json& conditions) {
  const Json* dot = part_of(conditions, "dot", "dot_over_lengths");
  if (dot == nullptr) return {};
  std::string out;
  for (const Json& row : (*dot)["dot_over_lengths"]) {
    const auto mean = row["mean_pct"].get<double>();
    if (row["column"] == "operands_and_stored")
      out += fmt::format("A dot product's error from rounded operands and a stored result is {:.3f} % at every length",
                         mean);
    if (row["column"] == "sequential_float16")
      out += fmt::format("; accumulating in FP16 adds {:.2f} % on average and grows with length. ", mean);
  }
  return out;
}

/// How many bits a dtype's mantissa has: wider is more.
int mantissa_bits(const std::string& condition) {
  const std::string dtype = condition.substr(0, condition.find('/'));
  return dtype == "bfloat16" ? 7 : dtype == "float16" ? 10 : dtype == "float32" ? 23 : 52;
}

/// A divergence of FP64 logits above this is more than their own rounding makes: logits apart by 1e-10.
constexpr double kFp64Rounding = 1e-20;

/// The row of the first base condition in another dtype.
const Json* rerun_row(const Json& rerun, const std::string& dtype) {
  for (const Json& row : rerun["rerun"])
    if (row["condition"].get<std::string>().starts_with(dtype + "/")) return &row;
  return nullptr;
}

}  // namespace

Json falsify_verdict(const Json& conditions, bool prefill_bit_equal) {
  if (!prefill_bit_equal)
    return {{"kind", "invalid"},
            {"sentence", "The measurement is invalid: the arms differ in the prefill, where both do the same work."}};
  std::string kind = "measured", sentence = dot_sentence(conditions);
  if (const Json* rerun = part_of(conditions, "fp32", "rerun"); rerun != nullptr && !(*rerun)["rerun"].empty()) {
    const Json& base = (*rerun)["rerun"].front();
    const double base_kl =
        base["kl_on_off_nats"]["value"].is_number() ? base["kl_on_off_nats"]["value"].get<double>() : 0.0;
    sentence += fmt::format("{}: mean same-prefix KL {:.2g} nats", base["condition"].get<std::string>(), base_kl);
    const std::string name = base["condition"].get<std::string>();
    kind = base_kl == 0.0 ? "equivalent" : "rounding";
    if (mantissa_bits(name) == 52 && base_kl > kFp64Rounding) kind = "not_rounding";
    for (const char* dtype : {"float32", "float64"}) {
      const Json* row = rerun_row(*rerun, dtype);
      if (row == nullptr || base_kl == 0.0 || mantissa_bits(dtype) <= mantissa_bits(name)) continue;
      const Json& kl = (*row)["kl_on_off_nats"]["value"];
      if (!kl.is_number()) continue;
      const double value = kl.get<double>();
      sentence += fmt::format(", in {} {:.2g} ({} flips)", dtype, value, (*row)["flips"].get<std::int64_t>());
      if (value > 0.0 && base_kl / value < kVanishes) kind = "not_rounding";
    }
    sentence += ". ";
  }
  if (!sentence.empty()) sentence.pop_back();
  if (sentence.empty()) sentence = "See the tables.";
  return {{"kind", kind}, {"sentence", sentence}};
}

}  // namespace kvdiv
