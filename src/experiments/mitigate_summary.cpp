#include "mitigate_summary.h"

#include <algorithm>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/sum.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

double mean(std::span<const double> values) {
  CompensatedSum sum;
  for (const double v : values) sum.add(v);
  return sum.value() / static_cast<double>(values.size());
}

std::optional<double> mean_if_any(std::span<const double> values) {
  return values.empty() ? std::nullopt : std::optional(mean(values));
}

Json ratio(const Json& a, const Json& b) {
  const bool is_defined = a.is_number() && b.is_number() && b.get<double>() > 0.0;
  return is_defined ? Json(a.get<double>() / b.get<double>()) : Json(nullptr);
}

double rate(std::size_t n, double seconds) { return seconds > 0.0 ? static_cast<double>(n) / seconds : 0.0; }

void append(std::vector<double>& to, std::span<const double> more) { to.insert(to.end(), more.begin(), more.end()); }

/// A limit of 0 asks for the same bits: a KL can be 0 where a logit has moved.
bool meets(const Json& row, double max_kl) {
  return max_kl == 0.0 ? row["bit_equal_rate"] == 1.0 : row["kl_on_off_nats"]["max"].get<double>() <= max_kl;
}

}  // namespace

MitigateRecord record_of(const Remedy& remedy, const MeasuredText& measured) {
  MitigateRecord r;
  r.remedy = remedy.name;
  CompensatedSum kl;
  for (const StepMetrics& m : measured.steps) {
    ++r.n_steps;
    r.n_bit_equal += m.bit_equal;
    if (!m.top1_equal) ++(m.tie_on || m.tie_off ? r.tie_flips : r.flips);
    kl.add(m.kl_on_off_nats);
    r.kl_max_nats = std::max(r.kl_max_nats, m.kl_on_off_nats);
    r.max_abs_dlogit = std::max(r.max_abs_dlogit, m.max_abs_dlogit);
  }
  r.kl_mean_nats = kl.value() / static_cast<double>(r.n_steps);
  r.n_on_as_without = measured.n_on_as_without;
  r.kl_to_fp64_nats = mean_if_any(measured.off_to_fp64);
  r.on_kl_to_fp64_nats = mean_if_any(measured.on_to_fp64);
  return r;
}

bool dominates(const Price& a, const Price& b) {
  const double slower = 1.0 - kSameSpeed;
  const bool as_good = a.kl_nats <= b.kl_nats && a.bytes <= b.bytes && a.on_tokens_per_s >= slower * b.on_tokens_per_s;
  const bool better = a.kl_nats < b.kl_nats || a.bytes < b.bytes || slower * a.on_tokens_per_s > b.on_tokens_per_s;
  return as_good && better;
}

std::vector<bool> pareto_front(std::span<const Price> prices) {
  std::vector<bool> out;
  for (const Price& p : prices)
    out.push_back(std::none_of(prices.begin(), prices.end(), [&](const Price& other) { return dominates(other, p); }));
  return out;
}

void MitigateSummary::add(std::size_t remedy, std::int32_t prompt, const MeasuredText& measured) {
  Tally& t = tallies_.at(remedy);
  for (const StepMetrics& m : measured.steps) {
    t.kl.push_back(m.kl_on_off_nats);
    t.dlogit.push_back(m.max_abs_dlogit);
    t.prompts.push_back(prompt);
    t.n_bit_equal += m.bit_equal;
    if (!m.top1_equal) ++(m.tie_on || m.tie_off ? t.tie_flips : t.flips);
  }
  t.seconds_on += measured.seconds_on;
  t.seconds_off += measured.seconds_off;
  if (measured.n_on_as_without) t.n_on_as_without = t.n_on_as_without.value_or(0) + *measured.n_on_as_without;
  append(t.off_to_fp64, measured.off_to_fp64);
  append(t.on_to_fp64, measured.on_to_fp64);
  t.fp64_prompts.resize(t.off_to_fp64.size(), prompt);
}

Json MitigateSummary::row(const Tally& t, const Remedy& remedy) {
  const std::size_t n = t.kl.size();
  const auto share = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(n); };
  Json j = {{"remedy", remedy.name}, {"what", remedy.kind->what}, {"n_steps", n}};
  j["kl_on_off_nats"] = to_json_value(summarize(t.kl, t.prompts));
  j["flips"] = t.flips;
  j["tie_flips"] = t.tie_flips;
  j["flip_rate"] = share(t.flips);
  j["bit_equal_rate"] = share(t.n_bit_equal);
  j["max_abs_dlogit"] = to_json_value(summarize(t.dlogit, t.prompts));
  j["on_as_without_rate"] = t.n_on_as_without ? Json(share(*t.n_on_as_without)) : Json(nullptr);
  j["kl_to_fp64_nats"] = to_json_value(summarize(t.off_to_fp64, t.fp64_prompts));
  j["on_kl_to_fp64_nats"] = to_json_value(summarize(t.on_to_fp64, t.fp64_prompts));
  j["on_tokens_per_s"] = rate(n, t.seconds_on);
  j["off_tokens_per_s"] = rate(n, t.seconds_off);
  return j;
}

void MitigateSummary::add_ratios(Json& rows) const {
  const Json none = rows.front();
  std::vector<Price> prices;
  for (Json& row : rows) {
    row["kl_to_none"] = ratio(row["kl_on_off_nats"]["mean"], none["kl_on_off_nats"]["mean"]);
    row["on_speed_to_none"] = ratio(row["on_tokens_per_s"], none["on_tokens_per_s"]);
    row["off_speed_to_none"] = ratio(row["off_tokens_per_s"], none["off_tokens_per_s"]);
    prices.push_back({row["kl_on_off_nats"]["mean"].get<double>(), row["on_tokens_per_s"].get<double>(),
                      row["peak_bytes"].get<std::uint64_t>()});
  }
  const std::vector<bool> front = pareto_front(prices);
  for (std::size_t i = 0; i < front.size(); ++i) rows[i]["on_pareto_front"] = static_cast<bool>(front[i]);
}

Json MitigateSummary::rows(const std::vector<Remedy>& remedies, const ModelConfig& config, const MitigateParams& params,
                           std::int64_t length) const {
  Json out = Json::array();
  for (std::size_t i = 0; i < remedies.size(); ++i) {
    Json j = row(tallies_.at(i), remedies[i]);
    const RemedyBytes bytes = bytes_of(remedies[i], config, params.dtype.front(), length);
    j["weights_bytes"] = bytes.weights;
    j["cache_bytes"] = bytes.cache;
    j["peak_bytes"] = bytes.peak;
    j["meets_limit"] = meets(j, params.max_kl);
    out.push_back(std::move(j));
  }
  add_ratios(out);
  return out;
}

}  // namespace kvdiv
