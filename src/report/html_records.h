#pragma once
// What the page shows of the records of a `run`: binned, so that its size depends on the number of conditions alone.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "html_kl_by_step.h"
#include "html_margins.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"

namespace kvdiv {

/// Takes the records in file order: the steps of a pair, then the pair; the pairs of a prompt one after the other.
/// Memory: about 10 MB a condition at most, and the pair in hand.
class RunAggregates {
 public:
  static constexpr std::size_t kMaxConditions = 256;
  static constexpr std::size_t kExamplesPerCondition = 3;

  /// Error{unreadable} for records that are out of order or of more conditions than kMaxConditions.
  void add(const StepRecord& step);
  void add(const PairRecord& pair);

  /// A list: {condition, n_pairs, n_steps, kl: {same_prefix, free_running} (KlBySteps), margins (MarginMap), prefix
  /// (PrefixSurvival), examples: [flip_example, …] of the first pairs that flipped}. Call once, after the last record.
  Json finish();

 private:
  struct Condition {
    std::string name, prompt;
    std::int64_t n_pairs = 0, n_steps = 0;
    KlBySteps same_prefix, free_running;
    MarginMap margins;
    PrefixSurvival prefix;
    std::vector<Json> examples;
    void end_prompt();
  };
  Condition& condition_of(const PairRecord& pair);

  std::vector<StepRecord> steps_;  ///< of the pair in hand
  std::size_t n_steps_ = 0;        ///< of these; what is behind them is kept for its memory
  std::vector<std::unique_ptr<Condition>> conditions_;
};

/// The aggregates of a result's records.jsonl; an empty list if it has no pairs.
Json aggregate_records(const std::filesystem::path& records_file);

}  // namespace kvdiv
