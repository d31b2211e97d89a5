#pragma once
// What the report of a `run` says, as a function of its records: the same for a run that was never interrupted, for one
// that was resumed, and for shards that were joined. Only speeds, and the controls that repeat pairs, come from elsewhere.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common_setup.h"
#include "kvdiv/experiments/run.h"
#include "kvdiv/stats/condition_summary.h"
#include "run_controls.h"
#include "run_fp64.h"
#include "verdict.h"

namespace kvdiv {

class RunSummary {
 public:
  RunSummary(const RunParams& params, std::int64_t n_layers, Warnings& warnings)
      : params_(params), n_layers_(n_layers), warnings_(warnings) {}

  /// What is added belongs to this condition, until it is finished.
  void begin(const Condition& condition);
  void add(const StepRecord& record);
  void add(const PairRecord& record);
  /// Puts the condition, with these speeds, into `conditions`.
  void finish_condition(Json timing);
  /// Adjusts the conditions' tests for their number; call once, behind the last.
  void finish();

  ControlTally& controls() { return tally_; }
  const Json& conditions() const { return conditions_; }
  /// What makes the measurement invalid: failed controls and logits that are not finite. Empty: nothing.
  std::vector<std::string> problems() const;
  /// The pairs that the float64 control decodes again.
  std::vector<DifferingPair> differing() const { return differing_.sample(); }
  Verdict verdict(const std::optional<Fp64Check>& fp64) const { return decide(inputs_, fp64, problems()); }

 private:
  void note_nonfinite(const PairRecord& record);

  const RunParams& params_;
  std::int64_t n_layers_;
  Warnings& warnings_;
  Condition condition_{};
  std::optional<ConditionAccumulator> accumulator_;
  PairTally pair_;
  std::optional<std::vector<double>> max_abs_activation_;  ///< the largest of the condition's pairs
  ControlTally tally_;
  DifferingPairs differing_;
  Json conditions_ = Json::array();
  std::vector<std::optional<McNemarResult>> mcnemar_;  ///< per condition
  std::vector<VerdictInput> inputs_;
  std::vector<std::string> nonfinite_;
};

}  // namespace kvdiv
