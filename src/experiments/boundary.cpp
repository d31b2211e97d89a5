#include "kvdiv/experiments/boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "boundary_margins.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/correlation.h"
#include "kvdiv/stats/summary.h"
#include "kvdiv/stats/two_sample.h"

namespace kvdiv {
namespace {

constexpr const char* kFamily = "conditions × exclusions × KL";

/// The pairs that flipped, as columns.
struct Flipped {
  std::vector<double> flip, kl, margin;
  std::vector<std::int32_t> prompts;
};

struct Exclusion {
  const char* name;
  std::int64_t from;  ///< smallest flip index that stays
};
constexpr std::array<Exclusion, 3> kExclusions{{{"all flips", 0}, {"without flip ≤ 1", 2}, {"without flip ≤ 3", 4}}};

Flipped flipped_pairs(const std::vector<const PairRow*>& rows, std::optional<double> PairRow::*kl, std::int64_t from) {
  Flipped f;
  for (const PairRow* row : rows) {
    if (!row->flip_index || *row->flip_index < from || !(row->*kl) || !row->margin) continue;
    f.flip.push_back(static_cast<double>(*row->flip_index));
    f.kl.push_back(*(row->*kl));
    f.margin.push_back(*row->margin);
    f.prompts.push_back(row->prompt);
  }
  return f;
}

/// One mean per prompt: the seeds of a prompt are one cluster.
Flipped by_prompt(const Flipped& f) {
  return {cluster_means(f.flip, f.prompts), cluster_means(f.kl, f.prompts), cluster_means(f.margin, f.prompts), {}};
}

/// Welch's t of the mean KL of flips in the first third of the flip indices against those in the last.
Json thirds_of(const Flipped& f, TestResult& test) {
  std::vector<double> sorted = f.flip, early, late;
  std::sort(sorted.begin(), sorted.end());
  Json j;
  if (!sorted.empty()) {
    const double low = quantile_sorted(sorted, 1.0 / 3.0), high = quantile_sorted(sorted, 2.0 / 3.0);
    for (std::size_t i = 0; i < f.flip.size(); ++i) {
      if (f.flip[i] <= low)
        early.push_back(f.kl[i]);
      else if (f.flip[i] > high)
        late.push_back(f.kl[i]);
    }
    j["early_up_to"] = low;
    j["late_above"] = high;
  }
  test = welch_t(early, late);
  j["early_kl_nats"] = to_json_value(summarize(early));
  j["late_kl_nats"] = to_json_value(summarize(late));
  return j;
}

Json correlation_row(const std::string& kl_name, const Exclusion& exclusion, const char* unit, const Flipped& f) {
  Json row = {{"kl", kl_name}, {"flips", exclusion.name}, {"unit", unit}, {"n", f.flip.size()}};
  row["pearson"] = to_json_value(pearson(f.flip, f.kl));
  row["spearman"] = to_json_value(spearman(f.flip, f.kl));
  row["partial"] = to_json_value(partial_correlation(f.flip, f.kl, f.margin));
  TestResult welch;
  row["thirds"] = thirds_of(f, welch);
  row["welch"] = to_json_value(welch);
  return row;
}

Json condition_json(const PairTable& table, std::int32_t condition) {
  const auto rows = table.of_condition(condition);
  std::set<std::int32_t> prompts;
  std::set<std::int64_t> seeds;
  std::int64_t n_flipped = 0;
  for (const PairRow* row : rows) {
    prompts.insert(row->prompt);
    seeds.insert(row->seed);
    n_flipped += row->flip_index.has_value();
  }
  Json j = {{"condition", table.conditions()[static_cast<std::size_t>(condition)]},
            {"n_pairs", rows.size()},
            {"n_prompts", prompts.size()},
            {"n_seeds", seeds.size()},
            {"n_flipped", n_flipped},
            {"margins", margins_of(table, condition)},
            {"calibration", calibration_of(table, condition)},
            {"kl_over_steps", kl_over_steps(table, condition)}};
  Json correlations = Json::array();
  for (const auto& [name, kl] :
       {std::pair{"same-prefix", &PairRow::kl_same_prefix}, std::pair{"free-running", &PairRow::kl_free_running}})
    for (const Exclusion& exclusion : kExclusions) {
      const Flipped f = flipped_pairs(rows, kl, exclusion.from);
      if (seeds.size() > 1) correlations.push_back(correlation_row(name, exclusion, "pairs, as published", f));
      correlations.push_back(correlation_row(name, exclusion, "prompts", by_prompt(f)));
    }
  j["correlations"] = std::move(correlations);
  return j;
}

/// Holm over all tests of the report.
void adjust_all(Json& conditions) {
  std::vector<Json*> tests;
  for (Json& c : conditions)
    for (Json& row : c["correlations"])
      for (const char* key : {"pearson", "spearman", "partial", "welch"}) tests.push_back(&row[key]);
  adjust_family(tests, Adjustment::holm, kFamily);
}

Json verdict_of(const Json& conditions) {
  std::int64_t flips = 0, predicted = 0, explained = 0, n_steps = 0;
  for (const Json& c : conditions) {
    const Json& m = c["margins"];
    const auto n = m["flips"].get<std::int64_t>();
    flips += n;
    n_steps += m["n_steps"].get<std::int64_t>();
    predicted += m["predicted"].get<std::int64_t>();
    if (m["share_explained"]["value"].is_number())
      explained += std::llround(m["share_explained"]["value"].get<double>() * static_cast<double>(n));
  }
  const std::string could = fmt::format("that held in {} of {} same-prefix steps", predicted, n_steps);
  if (n_steps == 0) return {{"kind", "not_applicable"}, {"sentence", "No same-prefix step was recorded."}};
  if (flips == 0)
    return {{"kind", "no_flips"},
            {"sentence",
             fmt::format("The largest logit never changed; a change needs margin ≤ 2·max|Δlogit|: {}.", could)}};
  return {
      {"kind", explained == flips ? "explained_by_margin" : "not_explained"},
      {"sentence", fmt::format("{} of {} changes of the largest logit are at a margin of at most 2·max|Δlogit|; {}.",
                               explained, flips, could)}};
}

}  // namespace

ExperimentResult analyse_boundary(const PairTable& table) {
  if (table.rows().empty()) fail(ErrorKind::invalid_measurement, "boundary: the run holds no pair");
  ExperimentResult result;
  for (std::size_t c = 0; c < table.conditions().size(); ++c)
    result.conditions.push_back(condition_json(table, static_cast<std::int32_t>(c)));
  adjust_all(result.conditions);
  result.verdict = verdict_of(result.conditions);
  result.complete = true;
  return result;
}

}  // namespace kvdiv
