#include "drift_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/hypothesis.h"
#include "kvdiv/stats/summary.h"
#include "kvdiv/stats/two_sample.h"

namespace kvdiv {
namespace {

constexpr const char* kFamily = "layers × conditions";

double number_or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

/// The mean of this layer over that of the layer before; null where the layer before has no difference.
std::optional<double> ratio_of_means(const Stat& here, const Stat& before) {
  if (!here.mean || !before.mean || *before.mean <= 0.0) return std::nullopt;
  return *here.mean / *before.mean;
}

double unit_roundoff(const std::string& dtype) {
  return std::ldexp(1.0, dtype == "bfloat16" ? -8 : dtype == "float16" ? -11 : dtype == "float32" ? -24 : -53);
}

/// A layer multiplies the difference by much, and what comes out is far more than rounding. The second half matters: two
/// states that differ in one number's last bit and then in all of them are a large factor apart, and mean nothing.
bool is_explosive(const Json& condition) {
  const double rounding = kExplosiveRoundings * unit_roundoff(condition["dtype"].get<std::string>());
  const Json& rows = condition["by_layer"];
  return std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
    const Json &factor = row["amplification"], &size = row["rel_l2"]["mean"];
    return factor.is_number() && size.is_number() && factor.get<double>() > kExplosive && size.get<double>() > rounding;
  });
}

}  // namespace

void DriftSummary::add(const LayerRecord& r) {
  const auto index = r.layer.is_string() ? static_cast<std::size_t>(sizes_.n_layers + 1) : r.layer.get<std::size_t>();
  layers_.resize(std::max(layers_.size(), index + 1));
  Layer& layer = layers_[index];
  layer.l2.push_back(r.l2);
  layer.rel_l2.push_back(number_or_nan(r.rel_l2));
  layer.cosine.push_back(number_or_nan(r.cosine));
  layer.max_abs.push_back(r.max_abs);
  layer.l2_trimmed.push_back(r.l2_trimmed);
  layer.rel_l2_trimmed.push_back(number_or_nan(r.rel_l2_trimmed));
  layer.cosine_trimmed.push_back(number_or_nan(r.cosine_trimmed));
}

void DriftSummary::add(const HeadRecord& r) {
  Head& head = heads_[{r.layer, r.head}];
  head.kv_head = r.kv_head;
  head.kl.push_back(r.kl_on_off_nats);
  head.max_abs.push_back(r.max_abs);
}

Json DriftSummary::layer_rows() const {
  Json rows = Json::array();
  std::optional<Stat> before;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const bool is_norm = i + 1 == layers_.size();
    const Stat l2 = summarize(layer.l2);
    Json row;
    row["layer"] = is_norm ? Json("norm") : Json(i);
    row["differing_rate"] =
        static_cast<double>(std::count_if(layer.l2.begin(), layer.l2.end(), [](double d) { return d > 0.0; })) /
        static_cast<double>(layer.l2.size());
    row["l2"] = to_json_value(l2);
    row["rel_l2"] = to_json_value(summarize(layer.rel_l2));
    row["cosine"] = to_json_value(summarize(layer.cosine));
    row["max_abs"] = to_json_value(summarize(layer.max_abs));
    row["l2_trimmed"] = to_json_value(summarize(layer.l2_trimmed));
    row["rel_l2_trimmed"] = to_json_value(summarize(layer.rel_l2_trimmed));
    row["cosine_trimmed"] = to_json_value(summarize(layer.cosine_trimmed));
    // The final norm rescales the state: against the last block it is no amplification by a layer.
    row["amplification"] = before && !is_norm ? to_json_value(ratio_of_means(l2, *before)) : Json(nullptr);
    row["against_layer_before"] =
        i > 0 && !is_norm ? to_json_value(mann_whitney(layer.l2, layers_[i - 1].l2)) : Json(nullptr);
    rows.push_back(std::move(row));
    before = l2;
  }
  return rows;
}

Json DriftSummary::head_rows() const {
  Json rows = Json::array();
  for (const auto& [where, head] : heads_)
    rows.push_back({{"layer", where.first},
                    {"head", where.second},
                    {"kv_head", head.kv_head},
                    {"kl_on_off_nats", to_json_value(summarize(head.kl))},
                    {"max_abs", to_json_value(summarize(head.max_abs))}});
  return rows;
}

Json DriftSummary::to_json() const {
  Json j;
  j["n_prompts"] = layers_.empty() ? 0 : layers_.front().l2.size();
  j["n_skipped"] = n_skipped_;
  j["by_layer"] = layer_rows();
  j["by_head"] = head_rows();
  j["first_differing_layer"] = nullptr;
  j["largest_amplification"] = nullptr;
  for (const Json& row : j["by_layer"]) {
    if (j["first_differing_layer"].is_null() && row["l2"]["max"].is_number() && row["l2"]["max"].get<double>() > 0.0)
      j["first_differing_layer"] = row["layer"];
    const Json& factor = row["amplification"];
    const Json& largest = j["largest_amplification"];
    if (factor.is_number() && (largest.is_null() || factor.get<double>() > largest["factor"].get<double>()))
      j["largest_amplification"] = Json{{"layer", row["layer"]}, {"factor", factor}};
  }
  return j;
}

void adjust_layer_tests(Json& conditions) {
  std::vector<Json*> tests;
  for (Json& c : conditions)
    for (Json& row : c["by_layer"])
      if (Json& test = row["against_layer_before"]; test.is_object()) tests.push_back(&test);
  adjust_family(tests, Adjustment::benjamini_hochberg, kFamily);
}

Json drift_verdict(const Json& conditions, bool prefill_bit_equal) {
  if (!prefill_bit_equal)
    return {{"kind", "invalid"},
            {"sentence", "The measurement is invalid: the arms differ in the prefill, where both do the same work."}};
  std::string kind = "none", sentence;
  for (const Json& c : conditions) {
    const std::string name = fmt::format("{}/{}", c["dtype"].get<std::string>(), c["backend"].get<std::string>());
    const Json& rows = c["by_layer"];
    if (rows.empty()) {
      sentence += name + ": no text reached the step. ";
      continue;
    }
    if (c["first_differing_layer"].is_null()) {
      sentence += name + ": all states are bit-equal. ";
      continue;
    }
    const Json& last = rows[rows.size() - 2];
    const Json& largest = c["largest_amplification"];
    const bool explosive = is_explosive(c);
    if (kind != "explosive") kind = explosive ? "explosive" : "gradual";
    const auto as_text = [](const Json& v) { return v.is_string() ? v.get<std::string>() : v.dump(); };
    if (c["unaligned"].get<bool>()) sentence += "Unaligned on purpose: this is not a measurement of the cache. ";
    sentence += fmt::format("{}: states differ from layer {} on; after the last block by {:.2g} of their norm (mean)",
                            name, as_text(c["first_differing_layer"]), last["rel_l2"].value("mean", 0.0));
    if (largest.is_object())
      sentence +=
          fmt::format(", largest step ×{:.3g} at layer {}", largest["factor"].get<double>(), as_text(largest["layer"]));
    sentence += ". ";
  }
  if (!sentence.empty()) sentence.pop_back();
  return {{"kind", kind}, {"sentence", sentence}};
}

}  // namespace kvdiv
