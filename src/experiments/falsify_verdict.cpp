#include "falsify_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

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

/// "7e-07 to 2e-06", or "0".
struct Range {
  double low = INFINITY, high = 0.0;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string text() const {
    return low == high ? fmt::format("{:.2g}", high) : fmt::format("{:.2g} to {:.2g}", low, high);
  }
};

/// Of the part orders: what one order for both arms leaves, and what two make, by dtype.
struct OrderFindings {
  std::int64_t n_steps = 0, n_equal = 0;                  ///< with one order
  std::vector<std::pair<std::string, Range>> two_orders;  ///< "float16", mean KL, nats

  explicit OrderFindings(const Json& rows) {
    for (const Json& row : rows) {
      const auto steps = row["n_steps"].get<std::int64_t>();
      if (row["same_order"].get<bool>()) {
        n_steps += steps;
        n_equal += std::llround(row["bit_equal_rate"].get<double>() * static_cast<double>(steps));
        continue;
      }
      std::string name = row["dtype"].get<std::string>();
      if (row["accumulator"] == "float16") name += " with FP16 accumulators";
      if (two_orders.empty() || two_orders.back().first != name) two_orders.emplace_back(name, Range{});
      if (const Json& kl = row["kl_on_off_nats"]["value"]; kl.is_number())
        two_orders.back().second.add(kl.get<double>());
    }
  }
  std::string sentence() const {
    std::string out =
        n_equal == n_steps
            ? fmt::format("With one order of summation for both arms all {} steps are bit-equal, in every dtype",
                          n_steps)
            : fmt::format(
                  "With one order of summation for both arms {} of {} steps still differ: that is no order's doing",
                  n_steps - n_equal, n_steps);
    for (std::size_t i = 0; i < two_orders.size(); ++i)
      out += fmt::format("{}{} {}", i == 0 ? "; with another order for one row the mean KL is, in nats, " : ", ",
                         two_orders[i].second.text(), "in " + two_orders[i].first);
    return out + ". ";
  }
};

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
  if (const Json* orders = part_of(conditions, "orders", "orders"); orders != nullptr) {
    const OrderFindings found((*orders)["orders"]);
    sentence += found.sentence();
    if (found.n_equal != found.n_steps) kind = "not_rounding";
  }
  if (!sentence.empty()) sentence.pop_back();
  if (sentence.empty()) sentence = "See the tables.";
  return {{"kind", kind}, {"sentence", sentence}};
}

}  // namespace kvdiv
