#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "mitigate_summary.h"

namespace kvdiv {
namespace {

/// A remedy whose recomputed arm is farther from float64 than this many times that of the run is worth a word: its arms
/// agree on something else.
constexpr double kFarther = 2.0;

std::string name(const Json& row) { return row["remedy"].get<std::string>(); }
double mean_of(const Json& row, const char* key) {
  return row[key]["mean"].is_number() ? row[key]["mean"].get<double>() : NAN;
}

/// Of those that meet the limit the fastest; of speeds that are the same, the one of fewest bytes. Null: none does.
const Json* cheapest(const Json& rows) {
  const Json* best = nullptr;
  const auto speed = [](const Json& row) { return row["on_tokens_per_s"].get<double>(); };
  double fastest = 0.0;
  for (const Json& row : rows)
    if (row["meets_limit"] == true && name(row) != "none") fastest = std::max(fastest, speed(row));
  for (const Json& row : rows) {
    if (row["meets_limit"] != true || name(row) == "none" || speed(row) < (1.0 - kSameSpeed) * fastest) continue;
    if (best == nullptr || row["peak_bytes"] < (*best)["peak_bytes"]) best = &row;
  }
  return best;
}

std::string price_of(const Json& row, const Json& none) {
  std::string out = fmt::format("{} ({:.2g} times the speed, {:.2g} times the bytes)", name(row),
                                row["on_speed_to_none"].is_number() ? row["on_speed_to_none"].get<double>() : NAN,
                                row["peak_bytes"].get<double>() / none["peak_bytes"].get<double>());
  const double farther = mean_of(row, "kl_to_fp64_nats") / mean_of(none, "kl_to_fp64_nats");
  if (farther > kFarther)
    out += fmt::format(", whose arms agree on a result {:.2g} times as far from float64", farther);
  return out;
}

/// The other end of the ladder: what compressing the cache costs on the scale of rounding.
std::string compressed_of(const Json& rows) {
  const double none = mean_of(rows.front(), "kl_on_off_nats");
  std::vector<std::string> parts;
  for (const Json& row : rows) {
    if (!name(row).starts_with("kv-int")) continue;
    const double kl = mean_of(row, "kl_on_off_nats");
    parts.push_back(none > 0.0 && kl > 0.0 ? fmt::format("{} costs {:.2g} nats, 10^{:.1f} times as much", name(row), kl,
                                                         std::log10(kl / none))
                                           : fmt::format("{} costs {:.2g} nats", name(row), kl));
  }
  return parts.empty() ? std::string() : fmt::format(" On the same steps {}.", fmt::join(parts, ", "));
}

std::string limit_text(double max_kl) {
  return max_kl == 0.0 ? std::string("the same bits in both arms")
                       : fmt::format("a KL of at most {:.2g} nats at every step", max_kl);
}

std::string failed_controls(const Json& controls) {
  std::vector<std::string> failed;
  for (const auto& [control, holds] : controls.items())
    if (holds == false) failed.push_back(control);
  return fmt::format("{}", fmt::join(failed, ", "));
}

}  // namespace

Json mitigate_verdict(const Json& condition, const Json& controls, double max_kl) {
  if (const std::string failed = failed_controls(controls); !failed.empty())
    return {{"kind", "invalid"}, {"sentence", "The measurement is invalid: control failed: " + failed + "."}};
  const Json& rows = condition["remedies"];
  const Json& none = rows.front();
  std::string sentence = fmt::format(
      "{}/{} without a remedy: mean KL(on‖off) {:.2g} nats, {} flips in {} "
      "steps.",
      condition["dtype"].get<std::string>(), condition["backend"].get<std::string>(), mean_of(none, "kl_on_off_nats"),
      none["flips"].get<std::int64_t>(), none["n_steps"].get<std::int64_t>());
  const Json* const best = cheapest(rows);
  std::string kind = "remedied";
  if (none["meets_limit"] == true) {
    kind = "none_needed";
    sentence += fmt::format(" That is {} already.", limit_text(max_kl));
  } else if (best == nullptr) {
    kind = "not_remedied";
    sentence += rows.size() > 1 ? fmt::format(" None of the {} remedies gives {}.", rows.size() - 1, limit_text(max_kl))
                                : " No remedy was asked for.";
  } else {
    sentence += fmt::format(" The cheapest remedy that gives {}: {}.", limit_text(max_kl), price_of(*best, none));
  }
  sentence += compressed_of(rows);
  if (condition["search"].is_object())
    sentence += fmt::format(" Smallest set of operations: {}.", condition["search"]["sentence"].get<std::string>());
  return {{"kind", kind}, {"sentence", sentence}};
}

}  // namespace kvdiv
