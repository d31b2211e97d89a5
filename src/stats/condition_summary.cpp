#include "kvdiv/stats/condition_summary.h"

#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/two_sample.h"

namespace kvdiv {
namespace {

std::optional<double> rate(std::int64_t count, std::int64_t of) {
  return of > 0 ? std::optional(static_cast<double>(count) / static_cast<double>(of)) : std::nullopt;
}

}  // namespace

ConditionAccumulator::ConditionAccumulator(std::string dtype, std::string backend, std::string strategy, Clock clocks)
    : dtype_(std::move(dtype)), backend_(std::move(backend)), strategy_(std::move(strategy)), clocks_(clocks) {
  static_assert(sizeof(Step) == 48);
}

void ConditionAccumulator::add(const StepRecord& record) {
  if (steps_.size() == n_complete_steps_) {
    open_pair_ = record.pair_id;
  } else if (open_pair_ != record.pair_id) {
    fail_unreadable("records: step of pair {} before the pair record of {}", record.pair_id, open_pair_);
  }
  Step step{};
  step.kl_on_off = record.kl_on_off_nats;
  step.kl_off_on = record.kl_off_on_nats;
  step.js = record.js_nats;
  step.max_abs_dlogit = record.max_abs_dlogit;
  step.margin = record.margin_on;
  step.prompt = -1;  // known when the pair record comes
  step.same_prefix = record.same_prefix;
  step.forced = record.clock == Clock::forced;
  step.free = record.clock == Clock::free;
  step.flip = record.token_on != record.token_off;
  // Only a greedy choice hangs on a tie of the largest logit; a draw that falls on the other side of a boundary does not.
  step.tie = strategy_ == "greedy" && (record.tie_on || record.tie_off);
  step.bit_equal = record.bit_equal;
  steps_.push_back(step);
  n_nonfinite_steps_ += record.n_nonfinite > 0;
}

void ConditionAccumulator::add(const PairRecord& record) {
  if (steps_.size() != n_complete_steps_ && open_pair_ != record.pair_id)
    fail_unreadable("records: pair record of {} behind the steps of {}", record.pair_id, open_pair_);
  const auto next = static_cast<std::int32_t>(prompts_.size());
  Prompt& prompt = prompts_.try_emplace(record.prompt_id, Prompt{next}).first->second;
  ++n_pairs_;
  ++prompt.n_pairs;
  prompt.n_diverged += record.diverged;
  seeds_.insert(record.seed);
  for (; n_complete_steps_ < steps_.size(); ++n_complete_steps_) steps_[n_complete_steps_].prompt = prompt.index;
  if (record.flip_index) {
    flip_index_.values.push_back(static_cast<double>(*record.flip_index));
    flip_index_.prompts.push_back(prompt.index);
  }
  if (!record.correct_on || !record.correct_off) return;
  const bool on = *record.correct_on, off = *record.correct_off;
  n_right_on_ += on;
  n_right_off_ += off;
  n_only_on_ += on && !off;
  n_only_off_ += off && !on;
  right_diff_.values.push_back(static_cast<double>(on) - static_cast<double>(off));
  right_diff_.prompts.push_back(prompt.index);
}

template <class Belongs>
StepGroup ConditionAccumulator::group(Belongs belongs, const StatOptions& options) const {
  StepGroup g;
  std::int64_t n_bit_equal = 0;
  Column column;
  for (const Step& step : steps_) {
    if (!belongs(step)) continue;
    ++g.n_steps;
    g.flips += step.flip && !step.tie;
    g.tie_flips += step.flip && step.tie;
    n_bit_equal += step.bit_equal;
    column.prompts.push_back(step.prompt);
  }
  g.flip_rate = rate(g.flips, g.n_steps);
  g.bit_equal_rate = rate(n_bit_equal, g.n_steps);
  const auto stat = [&](double Step::*value) {
    column.values.clear();
    for (const Step& step : steps_)
      if (belongs(step)) column.values.push_back(step.*value);
    return summarize(column.values, column.prompts, options);
  };
  g.kl_on_off_nats = stat(&Step::kl_on_off);
  g.kl_off_on_nats = stat(&Step::kl_off_on);
  g.js_nats = stat(&Step::js);
  g.max_abs_dlogit = stat(&Step::max_abs_dlogit);
  g.margin = stat(&Step::margin);
  return g;
}

void ConditionAccumulator::set_divergence(ConditionSummary& summary, const StatOptions& options) const {
  std::int64_t n_diverged = 0;
  for (const auto& [id, prompt] : prompts_) {
    n_diverged += prompt.n_diverged;
    DivergenceByPrompt& by = summary.divergence_by_prompt;
    ++(prompt.n_diverged == 0 ? by.never : prompt.n_diverged == prompt.n_pairs ? by.always : by.sometimes);
  }
  summary.divergence_rate = rate(n_diverged, n_pairs_);
  summary.flip_index = summarize(flip_index_.values, flip_index_.prompts, options);
}

void ConditionAccumulator::set_accuracy(ConditionSummary& summary, const StatOptions& options) const {
  AccuracySummary& a = summary.accuracy;
  a.n = static_cast<std::int64_t>(right_diff_.values.size());
  if (a.n == 0) return;
  a.on = rate(n_right_on_, a.n);
  a.off = rate(n_right_off_, a.n);
  a.diff = rate(n_right_on_ - n_right_off_, a.n);  // of the counts: one rounding, and 0 is 0
  if (const auto ci = bootstrap_mean(right_diff_.values, right_diff_.prompts, options))
    a.ci = std::vector<double>{ci->low, ci->high};
  summary.accuracy_equivalence =
      equivalence_mean(cluster_means(right_diff_.values, right_diff_.prompts), kAccuracyMargin);
  summary.mcnemar = mcnemar(n_only_on_, n_only_off_, a.n);
}

ConditionSummary ConditionAccumulator::finish(const StatOptions& options) const {
  if (n_complete_steps_ != steps_.size())
    fail_unreadable("records: no pair record behind the {} step(s) of pair {}", steps_.size() - n_complete_steps_,
                    open_pair_);
  ConditionSummary s;
  s.dtype = dtype_;
  s.backend = backend_;
  s.strategy = strategy_;
  s.n_pairs = n_pairs_;
  s.n_prompts = static_cast<std::int64_t>(prompts_.size());
  s.n_seeds = static_cast<std::int64_t>(seeds_.size());
  s.n_nonfinite_steps = n_nonfinite_steps_;
  const bool ran_free = clocks_ != Clock::forced;
  set_divergence(s, options);
  s.same_prefix = group([](const Step& step) { return step.same_prefix; }, options);
  s.free_running = group([&](const Step& step) { return ran_free && !step.forced; }, options);
  s.after_flip = group([&](const Step& step) { return ran_free && step.free && !step.same_prefix; }, options);
  set_accuracy(s, options);
  return s;
}

}  // namespace kvdiv
