#include <algorithm>

#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/summary.h"
#include "trace_births.h"

namespace kvdiv {

void BirthSummary::Cell::add(std::int32_t prompt, const TraceBirthRecord& r, bool is_first) {
  operation = r.operation;
  layer = r.layer;
  ++n;
  n_born += r.inputs_equal && !r.output_equal;
  n_first += is_first;
  differs.push_back(r.isolated_equal ? 0.0 : 1.0);
  rel_l2.push_back(r.isolated_rel_l2.value_or(0.0));
  prompts.push_back(prompt);
  max_abs = std::max(max_abs, r.isolated_max_abs);
}

Json BirthSummary::Cell::row(double n_chances) const {
  Json j = {{"operation", operation}, {"n", n}};
  j["natural_rate"] = static_cast<double>(n_first) / n_chances;
  j["born_rate"] = static_cast<double>(n_born) / static_cast<double>(n);
  j["isolated_rate"] = to_json_value(mean_interval_bca(differs, prompts));
  j["isolated_rel_l2"] = to_json_value(summarize(rel_l2, prompts));
  j["isolated_max_abs"] = max_abs;
  return j;
}

void BirthSummary::add(std::int32_t prompt, const std::vector<TraceBirthRecord>& records) {
  cells_.resize(records.size());
  ++n_;
  std::pair<std::int64_t, Name> first{0, "none"};
  std::int64_t layer_with_first = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const TraceBirthRecord& r = records[i];
    const bool is_born = r.inputs_equal && !r.output_equal;
    const bool of_step = is_born && first.first == 0, of_layer = is_born && layer_with_first != r.layer;
    if (of_step) first = {r.layer, r.operation};
    if (of_layer) layer_with_first = r.layer;
    cells_[i].add(prompt, r, of_layer);
    if (!by_operation_.contains(r.operation)) names_.push_back(r.operation);
    by_operation_[r.operation].add(prompt, r, of_step);
  }
  ++first_[first];
}

Json BirthSummary::to_json() const {
  Json births = Json::array(), by_operation = Json::array(), first_born = Json::array();
  for (const Cell& c : cells_) {
    births.push_back({{"layer", c.layer}});
    births.back().update(c.row(static_cast<double>(n_)));
  }
  for (const Name& name : names_) by_operation.push_back(by_operation_.at(name).row(static_cast<double>(n_)));
  for (const auto& [where, n] : first_) {
    const double rate = static_cast<double>(n) / static_cast<double>(n_);
    first_born.push_back({{"operation", where.second}, {"n", n}, {"rate", rate}});
    first_born.back()["layer"] = where.first > 0 ? Json(where.first) : Json(nullptr);
  }
  std::stable_sort(first_born.begin(), first_born.end(), [](const Json& a, const Json& b) { return a["n"] > b["n"]; });
  return {{"births", births}, {"births_by_operation", by_operation}, {"first_born", first_born}};
}

}  // namespace kvdiv
