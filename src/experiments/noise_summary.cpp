#include "noise_summary.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kvdiv/base/fields.h"
#include "noise_rates.h"

namespace kvdiv {
namespace {

constexpr std::array<double, 3> kLevels{0.01, 0.1, 0.5};

template <class P, class T>
T sum(const std::vector<P>& prompts, T P::*member) {
  T out{};
  for (const P& p : prompts) out += p.*member;
  return out;
}

/// An interval in another unit.
Json divided(const Json& interval, std::optional<double> unit) {
  Json out = Json::object();
  for (const char* key : {"value", "low", "high"}) {
    const Json& x = interval[key];
    out[key] = x.is_number() && unit && *unit > 0.0 ? Json(x.get<double>() / *unit) : Json(nullptr);
  }
  return out;
}

}  // namespace

Crossing crossing(std::span<const CurvePoint> curve, double level) {
  double rate = 0.0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double before = rate;
    rate = std::max(rate, curve[i].rate);
    if (rate < level) continue;
    if (i == 0) return {std::nullopt, fmt::format("the rate is {:.3g} at the smallest size already", rate)};
    const double a = std::log(curve[i - 1].size), b = std::log(curve[i].size);
    return {std::exp(a + (b - a) * (level - before) / (rate - before)), ""};
  }
  if (curve.empty()) return {std::nullopt, "no noise changed anything that is stored"};
  return {std::nullopt, fmt::format("the rate is {:.3g} at most", rate)};
}

std::vector<NoiseSummary::PerPrompt> NoiseSummary::Cell::in_order() const {
  std::vector<PerPrompt> out;
  for (const auto& [index, prompt] : prompts) out.push_back(prompt);
  return out;
}

double NoiseSummary::stored_size(const std::vector<PerPrompt>& prompts) {
  return std::sqrt(sum(prompts, &PerPrompt::stored_size2) / sum(prompts, &PerPrompt::n_texts));
}

void NoiseSummary::add(const NoiseCase& c, std::int64_t prompt_index, const NoiseRecord& r) {
  const double by_size = c.kind == NoiseKind::gaussian ? c.size : -static_cast<double>(c.bits);
  Cell& cell = cells_[{c.kind, c.what, by_size}];
  PerPrompt& p = cell.prompts[prompt_index];
  p.n_steps += static_cast<double>(r.n_steps);
  p.flips += static_cast<double>(r.flips);
  p.tie_flips += r.tie_flips;
  p.n_texts += 1.0;
  p.flipped_texts += r.flips > 0 ? 1.0 : 0.0;
  p.kl_nats += r.kl_mean_nats * static_cast<double>(r.n_steps);
  p.stored_size2 += r.stored_size.value_or(0.0) * r.stored_size.value_or(0.0);
  p.stored_rms2 += r.stored_rms.value_or(0.0) * r.stored_rms.value_or(0.0);
  cell.kl_max = std::max(cell.kl_max, r.kl_max_nats);
  cell.max_abs_dlogit = std::max(cell.max_abs_dlogit, r.max_abs_dlogit);
}

Json NoiseSummary::row(const Key& key, const Cell& cell) {
  const auto& [kind, what, by_size] = key;
  const std::vector<PerPrompt> prompts = cell.in_order();
  const double n_texts = sum(prompts, &PerPrompt::n_texts);
  const bool is_gaussian = kind == NoiseKind::gaussian;
  Json j = {{"kind", name_of(kind)}, {"what", name_of(what)}};
  j["size"] = is_gaussian ? Json(by_size) : Json(nullptr);
  j["mantissa_bits"] = is_gaussian ? Json(nullptr) : Json(static_cast<std::int64_t>(-by_size));
  j["relative_size_stored"] = stored_size(prompts);
  j["relative_rms_stored"] = std::sqrt(sum(prompts, &PerPrompt::stored_rms2) / n_texts);
  j["n_prompts"] = prompts.size();
  j["n_texts"] = static_cast<std::int64_t>(n_texts);
  j["n_steps"] = static_cast<std::int64_t>(sum(prompts, &PerPrompt::n_steps));
  j["flips"] = static_cast<std::int64_t>(sum(prompts, &PerPrompt::flips));
  j["tie_flips"] = sum(prompts, &PerPrompt::tie_flips);
  j["flip_rate"] = to_json_value(ratio_interval(prompts, &PerPrompt::flips, &PerPrompt::n_steps));
  j["text_flip_rate"] = to_json_value(ratio_interval(prompts, &PerPrompt::flipped_texts, &PerPrompt::n_texts));
  j["kl_mean_nats"] = to_json_value(ratio_interval(prompts, &PerPrompt::kl_nats, &PerPrompt::n_steps));
  j["kl_max_nats"] = cell.kl_max;
  j["max_abs_dlogit"] = cell.max_abs_dlogit;
  return j;
}

NoiseSummary::Curve NoiseSummary::curve_of(NoiseKind kind, NoiseWhat what) const {
  Curve curve;
  for (const auto& [key, cell] : cells_) {
    if (std::get<0>(key) != kind || std::get<1>(key) != what) continue;
    auto prompts = cell.in_order();
    const double stored = stored_size(prompts);
    if (stored > 0.0) curve.emplace_back(stored, std::move(prompts));  // nothing has no place on a logarithmic axis
  }
  std::stable_sort(curve.begin(), curve.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return curve;
}

/// The interval resamples prompts through the whole computation.
Json NoiseSummary::threshold(const Curve& curve, bool by_step, double level) {
  const auto count = by_step ? &PerPrompt::flips : &PerPrompt::flipped_texts;
  const auto total = by_step ? &PerPrompt::n_steps : &PerPrompt::n_texts;
  std::optional<std::string> reason;
  const auto size_of = [&](std::span<const std::uint32_t> drawn) {
    std::vector<CurvePoint> points;
    for (const auto& [size, prompts] : curve)
      points.push_back({size, ratio_of(prompts, drawn, count, total).value_or(0.0)});
    Crossing found = crossing(points, level);
    if (!reason) reason = found.reason;  // of the sample itself, which comes first
    return found.size;
  };
  const std::int64_t n_prompts = curve.empty() ? 1 : std::ssize(curve.front().second);
  BootstrapInterval size = bootstrap_interval(n_prompts, size_of, BootstrapMethod::percentile);
  if (!size.value) size.reason = reason;
  const auto n = curve.empty() ? 0.0 : sum(curve.front().second, total);
  Json j = {{"per", by_step ? "step" : "text"}, {"level", level}, {"n", static_cast<std::int64_t>(n)}};
  j["size"] = to_json_value(size);
  std::vector<std::string> notes;
  // Then the crossing says no more than between which sizes the first flip is.
  if (level * n < 1.0) notes.push_back(fmt::format("a rate of {:g} is less than one of {:g}", level, n));
  if (size.n_undefined > 0)
    notes.push_back(fmt::format("{} resamples do not cross the level in the range: the interval is that of the others",
                                size.n_undefined));
  j["note"] = notes.empty() ? Json(nullptr) : Json(fmt::format("{}", fmt::join(notes, "; ")));
  return j;
}

Json NoiseSummary::thresholds(NoiseKind kind, NoiseWhat what, const NoiseReference& fp16) const {
  const Curve curve = curve_of(kind, what);
  Json rows = Json::array();
  for (const bool by_step : {true, false})
    for (const double level : kLevels) {
      Json j = {{"kind", name_of(kind)}, {"what", name_of(what)}};
      j.update(threshold(curve, by_step, level));
      j["in_fp16_computed"] = divided(j["size"], fp16.model_error(what));
      j["in_fp16_stored"] = divided(j["size"], fp16.storage_error(what));
      rows.push_back(std::move(j));
    }
  return rows;
}

Json NoiseSummary::to_json(const NoiseReference& fp16) const {
  Json j = {{"curve", Json::array()}, {"thresholds", Json::array()}};
  std::set<std::pair<NoiseKind, NoiseWhat>> curves;
  for (const auto& [key, cell] : cells_) {
    j["curve"].push_back(row(key, cell));
    curves.insert({std::get<0>(key), std::get<1>(key)});
  }
  for (const auto& [kind, what] : curves)
    for (Json& r : thresholds(kind, what, fp16)) j["thresholds"].push_back(std::move(r));
  return j;
}

Json NoiseSummary::rates_of_rounding(NoiseWhat what, std::int64_t bits) const {
  const auto cell = cells_.find({NoiseKind::mantissa, what, -static_cast<double>(bits)});
  if (cell == cells_.end()) return {{"flip_rate", nullptr}, {"text_flip_rate", nullptr}};
  const Json found = row(cell->first, cell->second);
  return {{"flip_rate", found["flip_rate"]}, {"text_flip_rate", found["text_flip_rate"]}};
}

}  // namespace kvdiv
