#pragma once
// One condition of `run` as a pure function of its records in the order in which they are written.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kvdiv/base/records.h"
#include "kvdiv/stats/hypothesis.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {

/// The steps of one kind. Rates are fractions of 1, null where there are no steps. Statistics resample prompts.
struct StepGroup {
  std::int64_t n_steps = 0;
  std::int64_t flips = 0;                ///< steps at which the arms chose different tokens, without tie_flips
  std::int64_t tie_flips = 0;            ///< such steps where the largest logit of an arm occurs more than once
  std::optional<double> flip_rate;       ///< flips / n_steps
  std::optional<double> bit_equal_rate;  ///< steps with bit-equal logits / n_steps
  Stat kl_on_off_nats, kl_off_on_nats, js_nats;
  Stat max_abs_dlogit;  ///< in the unit of the logits
  Stat margin;          ///< ON's top-1 minus top-2 logit, in the unit of the logits
};

template <class V>
void describe_fields(V& v, StepGroup& g) {
  v.field("n_steps", g.n_steps);
  v.field("flips", g.flips);
  v.field("tie_flips", g.tie_flips);
  v.field("flip_rate", g.flip_rate);
  v.field("bit_equal_rate", g.bit_equal_rate);
  v.field("kl_on_off_nats", g.kl_on_off_nats);
  v.field("kl_off_on_nats", g.kl_off_on_nats);
  v.field("js_nats", g.js_nats);
  v.field("max_abs_dlogit", g.max_abs_dlogit);
  v.field("margin", g.margin);
}

/// Prompts by how many of their seeds diverged. The three add up to n_prompts.
struct DivergenceByPrompt {
  std::int64_t always = 0, sometimes = 0, never = 0;
};

template <class V>
void describe_fields(V& v, DivergenceByPrompt& d) {
  v.field("always", d.always);
  v.field("sometimes", d.sometimes);
  v.field("never", d.never);
}

/// Over the n pairs whose two answers were scored; all else is null if there are none.
struct AccuracySummary {
  std::optional<double> on, off;          ///< fraction of right answers
  std::optional<double> diff;             ///< on − off
  std::optional<std::vector<double>> ci;  ///< [low, high] of diff: 95 % bootstrap by prompt; null below two prompts
  std::int64_t n = 0;
};

template <class V>
void describe_fields(V& v, AccuracySummary& a) {
  v.field("on", a.on);
  v.field("off", a.off);
  v.field("diff", a.diff);
  v.field("ci", a.ci);
  v.field("n", a.n);
}

/// One answer in a hundred.
inline constexpr double kAccuracyMargin = 0.01;

/// The condition as it stands in report.json, but for `timing`, which is not a function of the records.
struct ConditionSummary {
  std::string dtype, backend, strategy;
  std::int64_t n_pairs = 0, n_prompts = 0, n_seeds = 0;
  std::optional<double> divergence_rate;  ///< pairs whose tokens differ / n_pairs; flips by a tie count here
  DivergenceByPrompt divergence_by_prompt;
  Stat flip_index;         ///< over the pairs that have one; steps from 0
  StepGroup same_prefix;   ///< both arms were fed the same ids so far: clock "both" and "forced"
  StepGroup free_running;  ///< each arm on its own tokens, all steps: clock "both" and "free". The paper's mean
  StepGroup after_flip;    ///< of these the steps behind the flip: two different texts
  std::int64_t n_nonfinite_steps = 0;  ///< step records with a non-finite logit, of any clock
  AccuracySummary accuracy;
  /// That the accuracies are the same within ±kAccuracyMargin: two one-sided tests of one mean difference per prompt. Null
  /// if no pair was scored.
  std::optional<TestResult> accuracy_equivalence;
  std::optional<McNemarResult> mcnemar;  ///< null if no pair was scored; p_adjusted is the caller's, over conditions
};

template <class V>
void describe_fields(V& v, ConditionSummary& c) {
  v.field("dtype", c.dtype);
  v.field("backend", c.backend);
  v.field("strategy", c.strategy);
  v.field("n_pairs", c.n_pairs);
  v.field("n_prompts", c.n_prompts);
  v.field("n_seeds", c.n_seeds);
  v.field("divergence_rate", c.divergence_rate);
  v.field("divergence_by_prompt", c.divergence_by_prompt);
  v.field("flip_index", c.flip_index);
  v.field("same_prefix", c.same_prefix);
  v.field("free_running", c.free_running);
  v.field("after_flip", c.after_flip);
  v.field("n_nonfinite_steps", c.n_nonfinite_steps);
  v.field("accuracy", c.accuracy);
  v.field("accuracy_equivalence", c.accuracy_equivalence);
  v.field("mcnemar", c.mcnemar);
}

/// Takes the records of one condition in file order: the step records of a pair in any order, then its pair record.
///
/// A step belongs to same_prefix by its flag; to free_running unless its clock is "forced"; to after_flip if its clock
/// is "free" and its prefixes differ. In the last two, flips are the steps at which the arms chose different tokens,
/// whatever their prefixes. A value that is not finite (KL at a token masked in one arm, NaN logits) is counted in its
/// statistic's n_nonfinite and averaged nowhere; a step with −inf in both arms only keeps its finite values.
/// tie_flips are of the strategy "greedy" alone: under sampling a tie of the largest logit is not what decides.
///
/// Memory: 48 bytes a step (up to twice that while the vector grows), about 100 bytes a prompt, 24 a pair; no texts.
/// finish takes about 30 bytes a step more while it runs.
class ConditionAccumulator {
 public:
  /// `clocks`: what was run. Under `forced` there is no free clock, so that "both" steps are not free-running either.
  ConditionAccumulator(std::string dtype, std::string backend, std::string strategy, Clock clocks = Clock::both);

  /// Error (unreadable) if the record belongs to another pair than the steps before it that still await theirs.
  void add(const StepRecord& record);
  void add(const PairRecord& record);

  /// The summary of all that was added; may be called again after more. The same records give the same summary, bit for
  /// bit. `options` without resamples makes it cheap. Error (unreadable) if the last pair has steps but no pair record.
  ConditionSummary finish(const StatOptions& options = {}) const;

 private:
  struct Step {  // 48 bytes
    double kl_on_off, kl_off_on, js, max_abs_dlogit, margin;
    std::int32_t prompt;
    bool same_prefix : 1, forced : 1, free : 1, flip : 1, tie : 1, bit_equal : 1;
  };
  struct Prompt {
    std::int32_t index = 0;
    std::int64_t n_pairs = 0, n_diverged = 0;
  };
  struct Column {
    std::vector<double> values;
    std::vector<std::int32_t> prompts;
  };

  template <class Belongs>
  StepGroup group(Belongs belongs, const StatOptions& options) const;
  void set_divergence(ConditionSummary& summary, const StatOptions& options) const;
  void set_accuracy(ConditionSummary& summary, const StatOptions& options) const;

  std::string dtype_, backend_, strategy_;
  Clock clocks_;
  std::vector<Step> steps_;
  std::size_t n_complete_steps_ = 0;  // steps whose pair record has come
  std::string open_pair_;             // pair_id of the steps behind them
  std::map<std::string, Prompt> prompts_;
  std::set<std::int64_t> seeds_;
  std::int64_t n_pairs_ = 0, n_nonfinite_steps_ = 0;
  std::int64_t n_right_on_ = 0, n_right_off_ = 0, n_only_on_ = 0, n_only_off_ = 0;
  Column flip_index_, right_diff_;  // right_diff_: right ON minus right OFF, −1, 0 or 1 a scored pair
};

}  // namespace kvdiv
