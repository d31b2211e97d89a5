#include "kvdiv/experiments/run_merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "run_summary.h"

namespace kvdiv {
namespace {

class Merge {
 public:
  Merge(const ShardsInput& input, const RunParams& params, Warnings& warnings)
      : input_(input), params_(params), warnings_(warnings), summary_(params, input.n_layers, warnings) {}
  ExperimentResult execute();

 private:
  void keep_warnings();
  void condition(const Condition& condition, std::size_t number);
  Json timing(std::size_t condition) const;
  void join_controls();
  std::optional<Fp64Check> fp64(const std::vector<DifferingPair>& sample) const;
  const Json* diagnosed(const std::vector<DifferingPair>& sample) const;

  const ShardsInput& input_;
  const RunParams& params_;
  Warnings& warnings_;
  RunSummary summary_;
};

/// Those that are a function of all records are not taken over but noted anew.
void Merge::keep_warnings() {
  const std::string_view ties = code_of(WarningCode::ties), nonfinite = code_of(WarningCode::nonfinite_logits);
  for (const Json& report : input_.shard_reports)
    for (const Json& json : report.value("warnings", Json::array())) {
      Warning warning;
      from_json_value(json, warning, "warnings");
      if (warning.code != ties && warning.code != nonfinite) warnings_.keep(warning);
    }
}

void Merge::condition(const Condition& c, std::size_t number) {
  summary_.begin(c);
  const std::size_t n_shards = input_.shard_reports.size();
  const std::size_t n_pairs = input_.n_prompts * seeds_of(params_, c.strategy).size();
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const FinishedPair pair = input_.next_pair(i % n_shards);
    if (pair.pair.condition != c.name())
      fail_unreadable("shard {}: pair {} where one of {} comes next: not the records of its report", i % n_shards,
                      pair.pair.pair_id, c.name());
    for (const StepRecord& step : pair.steps) summary_.add(step);
    summary_.add(pair.pair);
  }
  summary_.finish_condition(timing(number));
}

/// All shards' steps over all shards' seconds; the memory of the largest.
Json Merge::timing(std::size_t condition) const {
  Json out;
  const auto sum = [&](const char* seconds_key, const char* rate_key) {
    double seconds = 0.0, steps = 0.0;
    for (const Json& report : input_.shard_reports) {
      const Json& t = report.at("conditions").at(condition).at("timing");
      if (!t.value(rate_key, Json()).is_number() || !t.value(seconds_key, Json()).is_number()) continue;
      seconds += t[seconds_key].get<double>();
      steps += t[seconds_key].get<double>() * t[rate_key].get<double>();
    }
    out[rate_key] = seconds > 0.0 ? Json(steps / seconds) : Json(nullptr);
    out[seconds_key] = seconds;
  };
  sum("on_s", "on_tokens_per_s");
  sum("off_s", "off_tokens_per_s");
  std::int64_t peak = 0;
  for (const Json& report : input_.shard_reports)
    peak = std::max(peak, report["conditions"][condition]["timing"].value("peak_rss_bytes", std::int64_t{0}));
  out["peak_rss_bytes"] = peak;
  return out;
}

/// A control holds if it holds in every shard. Numbers of tokens are in the records.
void Merge::join_controls() {
  ControlTally& tally = summary_.controls();
  for (const Json& report : input_.shard_reports)
    for (const auto& [member, key] : boolean_controls())
      tally.*member = tally.*member && report.value("controls", Json::object()).value(key, false);
}

/// The shards' own controls hold every pair that one run's would have: each decoded its most different ones.
std::optional<Fp64Check> Merge::fp64(const std::vector<DifferingPair>& sample) const {
  std::vector<Fp64Pair> pairs;
  for (const DifferingPair& wanted : sample) {
    const std::string name = fp64_name_of(wanted);
    std::optional<Fp64Pair> found;
    for (const Json& report : input_.shard_reports) {
      const Json check = report.value("fp64_check", Json());
      for (const Json& pair : check.is_object() ? check.value("pairs", Json::array()) : Json::array())
        if (pair.value("pair", "") == name) from_json_value(pair, found.emplace(), "fp64_check.pairs");
    }
    if (!found) return std::nullopt;
    // Written as null: not finite.
    for (double* value : {&found->mean_kl_nats, &found->max_abs_dlogit})
      if (std::isnan(*value)) *value = std::numeric_limits<double>::infinity();
    pairs.push_back(*found);
  }
  return total_of(std::move(pairs));
}

/// The verdict of the shard that looked into the first of these pairs; null if it found no bug.
const Json* Merge::diagnosed(const std::vector<DifferingPair>& sample) const {
  for (const Json& report : input_.shard_reports) {
    const Json& verdict = report.at("verdict");
    if (verdict.value("kind", "") != "bug" || !report.value("fp64_check", Json()).is_object()) continue;
    for (const Json& pair : report["fp64_check"].value("pairs", Json::array()))
      if (pair.value("pair", "") == fp64_name_of(sample.front())) return &verdict;
  }
  return nullptr;
}

ExperimentResult Merge::execute() {
  keep_warnings();
  ExperimentResult result;
  std::size_t number = 0;
  for (const DType dtype : params_.dtype)
    for (const std::string& backend : params_.backend)
      for (const Strategy strategy : params_.strategy) condition({dtype, backend, strategy}, number++);
  summary_.finish();
  join_controls();
  const std::vector<DifferingPair> sample = summary_.differing();
  std::optional<Fp64Check> check;
  if (summary_.problems().empty() && !sample.empty()) check = fp64(sample);
  result.conditions = summary_.conditions();
  result.controls = to_json(summary_.controls());
  result.extra["fp64_check"] = check ? to_json_value(*check) : Json(nullptr);
  const Verdict verdict = summary_.verdict(check);
  result.verdict = to_json_value(verdict);
  if (verdict.kind == "bug")
    if (const Json* theirs = diagnosed(sample)) result.verdict = with_diagnosis(verdict, *theirs);
  result.complete = true;
  return result;
}

}  // namespace

ExperimentResult merge_shards(const ShardsInput& input, Warnings& warnings) {
  RunParams params;
  from_json_value(input.params, params, "experiment.params");
  return Merge(input, params, warnings).execute();
}

}  // namespace kvdiv
