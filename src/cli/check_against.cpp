#include "check_against.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kvdiv/report/identity.h"
#include "kvdiv/stats/rates.h"

namespace kvdiv {
namespace {

const Json& at(const Json& json, std::initializer_list<const char*> keys) {
  static const Json null;
  const Json* here = &json;
  for (const char* key : keys) {
    if (!here->is_object() || !here->contains(key)) return null;
    here = &here->at(key);
  }
  return *here;
}

std::optional<double> number(const Json& j) { return j.is_number() ? std::optional(j.get<double>()) : std::nullopt; }

void name_differences(const std::string& path, const Json& now, const Json& before, std::vector<std::string>& out) {
  // Where the checkpoint lies is of no account; what the cast did to it follows from weights and dtype.
  for (const KeyDifference& d : key_differences(path, now, before, {"model.path", "model.cast"}))
    out.push_back(fmt::format("{}: {}, was {}", d.key, d.a, d.b));
}

/// Why the prompts are not the same; empty if they are.
std::string other_prompts(const Json& now, const Json& before) {
  const Json &hash = at(now, {"data", "sha256"}), &old_hash = at(before, {"data", "sha256"});
  if (!hash.is_string() || !old_hash.is_string())
    return "data.sha256 is missing, so the prompts cannot be shown to be the same";
  if (hash != old_hash)
    return fmt::format("other prompts: data.sha256 is {}, was {}", short_dump(hash), short_dump(old_hash));
  const Json &indices = at(now, {"data", "indices"}), &old_indices = at(before, {"data", "indices"});
  if (!indices.is_array() || !old_indices.is_array())
    return "data.indices is missing, so the prompts cannot be shown to be the same";
  if (indices == old_indices) return {};
  std::size_t i = 0;
  while (i < std::min(indices.size(), old_indices.size()) && indices[i] == old_indices[i]) ++i;
  const auto item = [&](const Json& list) { return i < list.size() ? short_dump(list[i]) : "not there"; };
  return fmt::format("other prompts: data.indices are {}, were {}; the first difference is number {}: {}, was {}",
                     indices.size(), old_indices.size(), i + 1, item(indices), item(old_indices));
}

class Comparer {
 public:
  Comparer(std::string condition, const Json& now, const Json& before, Comparison& out)
      : condition_(std::move(condition)), now_(now), before_(before), out_(out) {}

  void stat(const char* metric, const char* statistic) {
    const Json &now = at(now_, {"same_prefix", metric}), &before = at(before_, {"same_prefix", metric});
    ComparedMetric& row = add(fmt::format("{} {}", metric, statistic), at(now, {statistic}), at(before, {statistic}));
    for (const Json* side : {&now, &before})
      if (const Json& n = at(*side, {"n_nonfinite"}); !n.is_null() && n != 0)
        undecided(row, fmt::format("{} of its values are not finite", short_dump(n)));
    if (row.status == LimitStatus::invalid || *row.now <= *row.before) return;
    const auto low = number(at(now, {"ci_low"})), high = number(at(before, {"ci_high"}));
    const bool has_intervals = low && high;
    const bool are_apart = has_intervals && *low > *high;
    const std::string intervals =
        !has_intervals ? "no intervals"
        : are_apart    ? fmt::format("the mean's interval begins at {:.3g}, the old one ended at {:.3g}", *low, *high)
                       : "the mean's intervals overlap";
    row.how = intervals;
    if (std::string_view(statistic) == "max") {
      const bool is_far = *row.now > kMaxFactor * *row.before;
      row.how = is_far ? fmt::format("more than {} times as large", kMaxFactor) : intervals;
      if (is_far || are_apart) row.status = LimitStatus::violated;
    } else if (!has_intervals) {
      undecided(row, "larger, and without intervals (fewer than two prompts) there is no telling whether by chance");
    } else if (are_apart) {
      row.status = LimitStatus::violated;
    }
  }

  /// Counts, as (events, trials) of a report's condition; tested later, together with those of the other conditions.
  using Counts = std::optional<std::pair<std::int64_t, std::int64_t>>;
  void rate(const char* metric, const Json& now, const Json& before, const Counts& counts, const Counts& old_counts,
            std::vector<std::pair<std::size_t, TestResult>>& tests) {
    ComparedMetric& row = add(metric, now, before);
    if (row.status == LimitStatus::invalid) return;
    if (!counts || !old_counts) return undecided(row, "its counts are not in the reports");
    if (*row.now <= *row.before) return;
    TestResult test = fisher_exact(counts->first, counts->second, old_counts->first, old_counts->second);
    if (!test.p) return undecided(row, fmt::format("no test: {}", test.reason.value_or("?")));
    tests.emplace_back(out_.metrics.size() - 1, std::move(test));
  }

 private:
  ComparedMetric& add(std::string metric, const Json& now, const Json& before) {
    out_.metrics.push_back({condition_, std::move(metric)});
    ComparedMetric& row = out_.metrics.back();
    row.now = number(now);
    row.before = number(before);
    if (!row.now || !row.before)
      undecided(row, fmt::format("it is null or missing in the {} report", row.now ? "old" : "new"));
    else
      row.how = *row.now == *row.before ? "unchanged" : "smaller";
    return row;
  }

  static void undecided(ComparedMetric& row, std::string why) {
    row.status = LimitStatus::invalid;
    row.how = std::move(why);
  }

  std::string condition_;
  const Json &now_, &before_;
  Comparison& out_;
};

Comparer::Counts flips_of(const Json& condition) {
  const auto flips = as_integer(at(condition, {"same_prefix", "flips"})),
             n = as_integer(at(condition, {"same_prefix", "n_steps"}));
  return flips && n ? Comparer::Counts({*flips, *n}) : std::nullopt;
}

Comparer::Counts diverged_of(const Json& condition) {
  const auto rate = number(at(condition, {"divergence_rate"}));
  const auto n = as_integer(at(condition, {"n_pairs"}));
  if (!rate || !n || *rate < 0.0 || *rate > 1.0 || *n < 0) return std::nullopt;
  return std::pair(static_cast<std::int64_t>(std::llround(*rate * static_cast<double>(*n))), *n);
}

void judge_rates(std::vector<std::pair<std::size_t, TestResult>>& tests, Comparison& out) {
  std::vector<TestResult*> family;
  for (auto& [index, test] : tests) family.push_back(&test);
  adjust_family(family, Adjustment::holm, "rates compared");
  for (const auto& [index, test] : tests) {
    const double p = test.p_adjusted.value_or(1.0);
    out.metrics[index].how = fmt::format("Fisher's exact test, adjusted p {:.2g}", p);
    if (p < kRegressionP) out.metrics[index].status = LimitStatus::violated;
  }
}

void compare_conditions(const Json& now, const std::vector<std::string>& names, const Json& before,
                        const std::vector<std::string>& old_names, Comparison& out) {
  std::vector<std::pair<std::size_t, TestResult>> tests;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find(old_names.begin(), old_names.end(), names[i]);
    if (found == old_names.end()) {
      out.differences.push_back(fmt::format("condition {}: not in the old report", names[i]));
      continue;
    }
    const Json& c = now["conditions"][i];
    const Json& old = before["conditions"][static_cast<std::size_t>(found - old_names.begin())];
    Comparer comparer(names[i], c, old, out);
    comparer.stat("kl_on_off_nats", "mean");
    comparer.rate("flip_rate", at(c, {"same_prefix", "flip_rate"}), at(old, {"same_prefix", "flip_rate"}), flips_of(c),
                  flips_of(old), tests);
    comparer.rate("divergence_rate", at(c, {"divergence_rate"}), at(old, {"divergence_rate"}), diverged_of(c),
                  diverged_of(old), tests);
    comparer.stat("max_abs_dlogit", "max");
  }
  judge_rates(tests, out);
  for (const std::string& name : old_names)
    if (std::find(names.begin(), names.end(), name) == names.end())
      out.differences.push_back(fmt::format("condition {}: only in the old report", name));
  if (out.metrics.empty()) out.problems.emplace_back("no condition is in both reports");
}

void conclude(const std::string& before_name, Comparison& out) {
  const auto count = [&](LimitStatus status) {
    return std::count_if(out.metrics.begin(), out.metrics.end(), [&](const auto& m) { return m.status == status; });
  };
  const auto first = [&](LimitStatus status) {
    return *std::find_if(out.metrics.begin(), out.metrics.end(), [&](const auto& m) { return m.status == status; });
  };
  const auto regressed = count(LimitStatus::violated), undecided = count(LimitStatus::invalid);
  if (!out.problems.empty()) {
    out.sentence = fmt::format("The comparison with {} is invalid: {}.", before_name, fmt::join(out.problems, "; "));
  } else if (undecided > 0) {
    const ComparedMetric m = first(LimitStatus::invalid);
    out.sentence = fmt::format("The comparison with {} is invalid: {} of {}: {}{}.", before_name, m.metric, m.condition,
                               m.how, regressed > 0 ? fmt::format(" (and {} regressed)", regressed) : "");
  } else if (regressed > 0) {
    const ComparedMetric m = first(LimitStatus::violated);
    out.status = LimitStatus::violated;
    out.sentence =
        fmt::format("Against {}, {} of {} numbers regressed; {} of {} is {:.3g}, was {:.3g}: {}.", before_name,
                    regressed, out.metrics.size(), m.metric, m.condition, *m.now, *m.before, m.how);
  } else {
    out.status = LimitStatus::ok;
    out.sentence = fmt::format("Against {}, none of {} numbers regressed.", before_name, out.metrics.size());
  }
}

}  // namespace

Comparison compare_reports(const Json& now, const std::string& now_name, const Json& before,
                           const std::string& before_name) {
  require_run(now, now_name);
  require_run(before, before_name);
  const auto names = condition_names(now, now_name), old_names = condition_names(before, before_name);
  Comparison out;
  for (const std::string& problem : report_problems(before)) out.problems.push_back("of the old report, " + problem);
  for (const std::string& problem : report_problems(now)) out.problems.push_back("of the new report, " + problem);
  if (std::string why = other_prompts(now, before); !why.empty()) out.problems.push_back(std::move(why));
  for (const char* section : {"tool", "environment", "numerics", "model"})
    name_differences(section, at(now, {section}), at(before, {section}), out.differences);
  name_differences("experiment.params", at(now, {"experiment", "params"}), at(before, {"experiment", "params"}),
                   out.differences);
  compare_conditions(now, names, before, old_names, out);
  conclude(before_name, out);
  return out;
}

}  // namespace kvdiv
