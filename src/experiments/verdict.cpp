#include "verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace kvdiv {
namespace {

std::string describe(const VerdictInput& c) {
  return fmt::format("{}: mean same-prefix KL(on‖off) {:.2g} nats, max |Δlogit| {:.2g}, {} {} in {} steps", c.condition,
                     c.mean_kl_nats, c.max_abs_dlogit, with_commas(static_cast<std::uint64_t>(c.flips)),
                     c.flips == 1 ? "flip" : "flips", with_commas(static_cast<std::uint64_t>(c.n_steps)));
}

double orders(double larger, double smaller) { return std::log10(larger / smaller); }

}  // namespace

Verdict decide(std::span<const VerdictInput> conditions, const std::optional<Fp64Check>& fp64,
               std::span<const std::string> problems) {
  if (!problems.empty()) return {"invalid", fmt::format("The measurement is invalid: {}.", fmt::join(problems, "; "))};
  const auto worst = std::max_element(conditions.begin(), conditions.end(),
                                      [](const auto& a, const auto& b) { return a.mean_kl_nats < b.mean_kl_nats; });
  const bool all_equal =
      std::all_of(conditions.begin(), conditions.end(), [](const VerdictInput& c) { return c.bit_equal_rate == 1.0; });
  if (all_equal) {
    std::int64_t n = 0;
    for (const auto& c : conditions) n += c.n_steps;
    return {"equivalent", fmt::format("ON and OFF gave the same bits in all {} same-prefix steps.",
                                      with_commas(static_cast<std::uint64_t>(n)))};
  }
  if (!fp64)
    return {"undecided", describe(*worst) + "; the FP64 control that tells rounding from a bug could not be run."};
  // Bit-equal conditions have nothing that could fail to vanish.
  double fewest = INFINITY;
  for (const auto& c : conditions) {
    if (c.dtype == DType::float64 || c.bit_equal_rate == 1.0) continue;
    fewest = std::min(fewest, c.mean_kl_nats > 0.0 ? orders(c.mean_kl_nats, fp64->mean_kl_nats) : INFINITY);
  }
  const bool only_fp64 = std::isinf(fewest) && worst->dtype == DType::float64;
  const double fp64_kl = only_fp64 ? worst->mean_kl_nats : fp64->mean_kl_nats;
  // With nothing but FP64 measured there is no larger number to compare with: 1e-20 nats is logits apart by 1e-10.
  const bool vanishes = only_fp64 ? fp64_kl < 1e-20 : fewest >= kRoundingOrders && fp64->max_abs_dlogit <= kFp64DLogit;
  if (!vanishes)
    return {"bug",
            fmt::format("{}; in float64 {:.2g} nats remain (max |Δlogit| {:.2g}): not rounding, it does not vanish "
                        "with precision.",
                        describe(*worst), fp64_kl, fp64->max_abs_dlogit)};
  std::string shrink = "nothing is left in float64";
  if (only_fp64)
    shrink = "that is the size of float64's own rounding";
  else if (fp64_kl > 0.0)
    shrink = fmt::format("in float64 {:.2g} nats are left, {}{:.0f} orders of magnitude less", fp64_kl,
                         conditions.size() > 1 ? "in every condition at least " : "", std::floor(fewest));
  return {"rounding", fmt::format("{}; {}.", describe(*worst), shrink)};
}

Json with_diagnosis(const Verdict& bug, const Diagnosis& d) {
  Json j = Json::object();
  j["where"] = d.where ? to_json_value(*d.where) : Json(nullptr);
  j["nearest"] = nullptr;
  const bool is_known = find_enum<Fault>(d.name).has_value();
  std::string text;
  if (d.where)
    text = fmt::format(" The arms part at step {}, layer {}, {}", d.where->step, d.where->layer, d.where->operation);
  if (is_known || !d.nearest.empty()) {
    const std::string symptom = is_known ? d.name : d.nearest.front().symptom;
    Json distance = nullptr;
    for (const NearSymptom& n : d.nearest)
      if (n.symptom == symptom) distance = n.distance_nats;
    j["nearest"] = {{"symptom", symptom},
                    {"distance_nats", distance},
                    {"evidence", d.sentence},
                    {"compared_to", to_json_value(d.nearest)}};
    text += is_known ? fmt::format(", as {} does: {}.", symptom, d.sentence)
                     : fmt::format("; no known symptom fits, the nearest in its numbers is {}.", symptom);
  } else if (d.where) {
    text += ".";
  }
  j["diagnosis"] = text;
  return with_diagnosis(bug, j);
}

Json with_diagnosis(const Verdict& bug, const Json& diagnosed) {
  Json j = to_json_value(bug);
  for (const char* key : {"where", "nearest", "diagnosis"}) j[key] = diagnosed.value(key, Json());
  if (j["diagnosis"].is_string()) j["sentence"] = bug.sentence + j["diagnosis"].get<std::string>();
  return j;
}

}  // namespace kvdiv
