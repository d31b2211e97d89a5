// Questions about positions, keys and rows.
#include "common_evidence.h"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "kvdiv/base/fields.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/model/rotary.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {
namespace {

at::Tensor rotated_to(const at::Tensor& x_BHTD, const RotaryTable& table) {
  return make_ops("torch", "eager")->rotate(x_BHTD, table.cos_11TD, table.sin_11TD);
}

/// The position offset that turns `x` (newest row, not rotated) into `rotated`; 0 is tried first.
std::optional<std::int64_t> explaining_shift(const at::Tensor& x, const at::Tensor& rotated, const Rotary& rotary,
                                             std::int64_t position) {
  const auto fits = [&](std::int64_t shift) {
    return relative_difference(rotated_to(x, rotary.at_positions(position + shift, 1)), rotated) <= kFp64Agreement;
  };
  // Positions behind the text too: as far as there are positions before it.
  for (std::int64_t distance = 0; distance <= position; ++distance)
    for (const std::int64_t shift : {distance, -distance})
      if (fits(shift)) return shift;
  return std::nullopt;
}

/// Index of the first key with weight in any head of the newest row [1,H,1,S].
std::int64_t first_seen(const at::Tensor& weights_BH1S) {
  const std::int64_t H = weights_BH1S.size(1), S = weights_BH1S.size(3);
  const at::Tensor w = weights_BH1S.contiguous();
  const double* at = w.const_data_ptr<double>();
  for (std::int64_t s = 0; s < S; ++s)
    for (std::int64_t h = 0; h < H; ++h)
      if (at[h * S + s] != 0.0) return s;
  return S;
}

double logits_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(a[i] - b[i]));
    size = std::max(size, std::fabs(b[i]));
  }
  return size > 0.0 ? largest / size : largest;
}

}  // namespace

RotaryShift rotary_shift(const ObservedStep& step, const FirstDifference& first, const ModelConfig& config) {
  if (first.site != Site::query_rotary && first.site != Site::key_rotary) return {};
  const Site before = first.site == Site::query_rotary ? Site::query : Site::key;
  const Rotary rotary(config, DType::float64, RotaryTables::reference, c10::kCPU);
  const auto of = [&](const ArmStep& arm) {
    return explaining_shift(arm.newest(before, first.layer), arm.newest(first.site, first.layer), rotary,
                            step.n_positions() - 1);
  };
  return {of(step.on), of(step.off)};
}

std::vector<LowestKey> lowest_keys(const ObservedStep& step, const ModelConfig& config) {
  std::vector<LowestKey> out;
  const std::int64_t n = step.n_positions();
  for (std::int64_t layer = 0; layer < config.sizes.n_layers; ++layer) {
    if (!step.on.has(Site::weights, layer) || !step.off.has(Site::weights, layer)) return {};
    const auto window = config.traits.windows[static_cast<std::size_t>(layer)];
    const auto lowest = [&](const ArmStep& arm) {
      const at::Tensor weights = arm.newest(Site::weights, layer);
      return n - weights.size(3) + first_seen(weights);
    };
    out.push_back({layer, window ? std::max<std::int64_t>(0, n - *window) : 0, lowest(step.on), lowest(step.off)});
  }
  return out;
}

double largest_future_weight(const ArmStep& arm, std::int64_t n_layers) {
  double largest = 0.0;
  for (std::int64_t layer = 0; layer < n_layers; ++layer)
    for (const at::Tensor& weights_BHTS : arm.calls(Site::weights, layer)) {
      const std::int64_t H = weights_BHTS.size(1), T = weights_BHTS.size(2), S = weights_BHTS.size(3);
      const double* at = weights_BHTS.const_data_ptr<double>();
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t t = 0; t < T; ++t)
          for (std::int64_t s = S - T + t + 1; s < S; ++s) largest = std::max(largest, at[(h * T + t) * S + s]);
    }
  return largest;
}

bool is_first_row_twice(const ObservedStep& prefill) {
  if (!prefill.on.has(Site::embedding, 0) || !prefill.off.has(Site::embedding, 0)) return false;
  const at::Tensor on = prefill.on.rows(Site::embedding, 0), off = prefill.off.rows(Site::embedding, 0);
  const std::int64_t n = off.size(1);
  return on.size(1) == n + 1 && relative_difference(last_of(on, 1, n), off) <= kFp64Agreement &&
         relative_difference(on.narrow(1, 0, 1), off.narrow(1, 0, 1)) <= kFp64Agreement;
}

std::optional<std::int64_t> late_by(const std::vector<std::vector<double>>& late,
                                    const std::vector<std::vector<double>>& other) {
  for (std::size_t k = 1; k + 1 < late.size(); ++k) {
    bool fits = true;
    for (std::size_t s = k; fits && s < late.size(); ++s)
      fits = logits_difference(late[s], other[s - k]) <= kFp64Agreement;
    if (fits) return static_cast<std::int64_t>(k);
  }
  return std::nullopt;
}

Json to_json(const Evidence& e) {
  Json j = {{"in_float64", e.in_float64}, {"in_chunks", e.in_chunks}};
  if (e.first)
    j["first"] = {{"step", e.first->step},
                  {"layer", e.first->layer + 1},
                  {"site", name_of_site(e.first->site)},
                  {"relative_difference", to_json_value(e.first->relative)},
                  {"missing_in", to_json_value(e.first->missing_in)}};
  for (const RowCounts& r : e.rows)
    if (r.on != r.expected_on || r.off != r.expected_off)
      j["rows"].push_back({{"step", r.step},
                           {"expected_on", r.expected_on},
                           {"on", r.on},
                           {"expected_off", r.expected_off},
                           {"off", r.off}});
  if (e.future_on > 0.0 || e.future_off > 0.0) j["future_weight"] = {{"on", e.future_on}, {"off", e.future_off}};
  if (e.rotary.on || e.rotary.off)
    j["rotary_shift"] = {{"on", to_json_value(e.rotary.on)}, {"off", to_json_value(e.rotary.off)}};
  for (const LowestKey& k : e.lowest)
    if (k.on != k.rule || k.off != k.rule)
      j["lowest_key"].push_back({{"layer", k.layer + 1}, {"rule", k.rule}, {"on", k.on}, {"off", k.off}});
  if (e.stored) {
    const StoredDifference& s = *e.stored;
    j["stored"] = {
        {"layer", s.layer + 1},      {"n_positions", s.n_compared},   {"differing", s.positions},
        {"heads", s.heads},          {"mantissa_bits_on", s.bits_on}, {"mantissa_bits_off", s.bits_off},
        {"relative_rms", s.rms},     {"relative_mean", s.mean},       {"neighbour_correlation", s.neighbours},
        {"n_elements", s.n_elements}};
    for (const auto& [position, source] : s.copy_of)
      j["stored"]["copies"].push_back({{"position", position}, {"of", source}});
  }
  if (e.norm_eps.on || e.norm_eps.off)
    j["norm_eps"] = {{"config", e.eps}, {"on", to_json_value(e.norm_eps.on)}, {"off", to_json_value(e.norm_eps.off)}};
  if (e.norm_order)
    j["norm_order"] = {
        {"n", e.norm_order->n}, {"other_order_on", e.norm_order->on}, {"other_order_off", e.norm_order->off}};
  if (e.on_late_by || e.off_late_by)
    j["late_by"] = {{"on", to_json_value(e.on_late_by)}, {"off", to_json_value(e.off_late_by)}};
  return j;
}

}  // namespace kvdiv
