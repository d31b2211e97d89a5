#include <cmath>
#include <limits>
#include <set>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/regression.h"
#include "kvdiv/stats/summary.h"
#include "trace_kv.h"

namespace kvdiv {
namespace {

constexpr std::array<const char*, 3> kPositions{"all", "prompt", "generated"};

/// Of the finite ones among the values added.
class Mean {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    squares_ += value * value;
    ++n_;
  }
  void add(std::span<const double> values) {
    for (const double v : values) add(v);
  }
  double mean() const { return n_ > 0 ? sum_ / n_ : std::numeric_limits<double>::quiet_NaN(); }
  double rms() const { return n_ > 0 ? std::sqrt(squares_ / n_) : std::numeric_limits<double>::quiet_NaN(); }

 private:
  double sum_ = 0.0, squares_ = 0.0, n_ = 0.0;
};

struct Slopes {
  std::vector<double> per_prompt;
  std::int64_t n_zero = 0;
};

/// Slope of log10 of the values over steps, a prompt at a time. A zero has no logarithm: it is left out and counted.
template <class Prompts>
Slopes slopes_of(const Prompts& prompts) {
  Slopes out;
  for (const auto& [prompt, points] : prompts) {
    std::vector<double> x, y;
    for (const auto& [step, value] : points) {
      out.n_zero += value == 0.0;
      if (!(value > 0.0) || !std::isfinite(value)) continue;
      x.push_back(static_cast<double>(step));
      y.push_back(std::log10(value));
    }
    if (const auto slope = fit_line(x, y).slope) out.per_prompt.push_back(*slope);
  }
  return out;
}

}  // namespace

void KvSummary::add(std::int32_t prompt, std::int64_t step, std::int64_t n_prompt_tokens, const KvErrors& errors,
                    double kl_nats, bool in_tables) {
  growth_[{"kl", "step", 0}][prompt].emplace_back(step, kl_nats);
  add_growth(prompt, step, n_prompt_tokens, errors);
  if (in_tables) add_tables(step, n_prompt_tokens, errors);
}

void KvSummary::add_growth(std::int32_t prompt, std::int64_t step, std::int64_t n_prompt_tokens,
                           const KvErrors& errors) {
  const auto begin = static_cast<std::size_t>(n_prompt_tokens);
  for (std::size_t q = 0; q < kKvErrors.size(); ++q) {
    Mean newest_of_all, generated_of_all;
    const std::size_t n_layers = errors.values[q].size();
    if (n_layers == 0) continue;
    const auto add_point = [&](std::int64_t layer, const Mean& newest, const Mean& generated) {
      growth_[{kKvErrors[q], "newest", layer}][prompt].emplace_back(step, newest.mean());
      growth_[{kKvErrors[q], "generated", layer}][prompt].emplace_back(step, generated.rms());
    };
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
      Mean newest, generated;
      for (std::int64_t head = 0; head < errors.n_heads; ++head) {
        const auto row = errors.head(q, layer, head);
        newest.add(row.back()), newest_of_all.add(row.back());
        generated.add(row.subspan(begin)), generated_of_all.add(row.subspan(begin));
      }
      add_point(static_cast<std::int64_t>(layer) + 1, newest, generated);
    }
    add_point(0, newest_of_all, generated_of_all);
  }
}

void KvSummary::add_tables(std::int64_t step, std::int64_t n_prompt_tokens, const KvErrors& errors) {
  const auto split = static_cast<std::size_t>(n_prompt_tokens);
  std::map<Place, std::array<Mean, kKvErrors.size()>> means;
  for (std::size_t q = 0; q < kKvErrors.size(); ++q)
    for (std::size_t layer = 0; layer < errors.values[q].size(); ++layer)
      for (std::int64_t head = 0; head < errors.n_heads; ++head) {
        const auto row = errors.head(q, layer, head);
        const auto l = static_cast<std::int64_t>(layer) + 1;
        const std::array<std::span<const double>, 3> parts{row, row.first(split), row.subspan(split)};
        for (int p = 0; p < 3; ++p)
          for (const Place& place : {Place{step, p, 0, -1}, Place{step, p, l, -1}, Place{step, p, l, head}})
            means[place][q].add(parts[static_cast<std::size_t>(p)]);
      }
  for (const auto& [place, of_quantities] : means)
    for (std::size_t q = 0; q < kKvErrors.size(); ++q) tables_[place][q].push_back(of_quantities[q].mean());
}

Json KvSummary::table(bool by_layer, bool by_head) const {
  Json rows = Json::array();
  for (const auto& [place, means] : tables_) {
    if ((place.layer > 0) != by_layer || (place.head >= 0) != by_head) continue;
    Json row = {{"step", place.step}, {"positions", kPositions[static_cast<std::size_t>(place.positions)]}};
    if (by_layer) row["layer"] = place.layer;
    if (by_head) row["kv_head"] = place.head;
    for (std::size_t q = 0; q < kKvErrors.size(); ++q)
      row[std::string(kKvErrors[q])] = to_json_value(summarize(means[q]));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json KvSummary::growth_rows() const {
  Json rows = Json::array();
  for (const auto& [series, prompts] : growth_) {
    const Slopes slopes = slopes_of(prompts);
    rows.push_back(
        {{"quantity", series.quantity},
         {"of", series.of},
         {"layer", series.layer == 0 ? Json("all") : Json(series.layer)},
         {"n_prompts", slopes.per_prompt.size()},
         {"n_zero_steps", slopes.n_zero},
         {"slope", to_json_value(mean_interval_bca(slopes.per_prompt, own_clusters(slopes.per_prompt.size())))}});
  }
  return rows;
}

Json KvSummary::step_rows() const {
  std::map<std::int64_t, std::map<std::string, Mean>> steps;
  for (const auto& [series, prompts] : growth_) {
    if (series.layer != 0 || series.of == "generated") continue;
    for (const auto& [prompt, points] : prompts)
      for (const auto& [step, value] : points) steps[step][std::string(series.quantity)].add(value);
  }
  Json rows = Json::array();
  for (const auto& [step, quantities] : steps) {
    Json row = {{"step", step}};
    for (const auto& [quantity, mean] : quantities) row[quantity] = to_json_value(mean.mean());
    rows.push_back(std::move(row));
  }
  return rows;
}

Json KvSummary::to_json() const {
  return {{"kv", table(false, false)},
          {"kv_by_layer", table(true, false)},
          {"kv_by_head", table(true, true)},
          {"growth", growth_rows()},
          {"by_step", step_rows()}};
}

}  // namespace kvdiv
