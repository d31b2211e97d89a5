#include "html_records.h"

#include <algorithm>

#include "html_flip_text.h"
#include "kvdiv/base/error.h"
#include "record_lines.h"

namespace kvdiv {

void RunAggregates::Condition::end_prompt() {
  same_prefix.end_prompt();
  free_running.end_prompt();
}

void RunAggregates::add(const StepRecord& step) {
  if (step.step < 0) fail_unreadable("records: pair {}: step {}", short_name(step.pair_id), step.step);
  if (n_steps_ > 0 && steps_.front().pair_id != step.pair_id)
    fail_unreadable("records: a step of pair {} before the pair record of {}", short_name(step.pair_id),
                    short_name(steps_.front().pair_id));
  if (n_steps_ == steps_.size())
    steps_.push_back(step);
  else
    steps_[n_steps_] = step;
  ++n_steps_;
}

RunAggregates::Condition& RunAggregates::condition_of(const PairRecord& pair) {
  const auto it =
      std::find_if(conditions_.rbegin(), conditions_.rend(), [&](const auto& c) { return c->name == pair.condition; });
  if (it != conditions_.rend()) return **it;
  if (conditions_.size() == kMaxConditions)
    fail_unreadable("records: more than {} conditions: not the records of one run", kMaxConditions);
  conditions_.push_back(std::make_unique<Condition>());
  conditions_.back()->name = pair.condition;
  return *conditions_.back();
}

void RunAggregates::add(const PairRecord& pair) {
  if (n_steps_ > 0 && steps_.front().pair_id != pair.pair_id)
    fail_unreadable("records: the pair record of {} behind the steps of {}", short_name(pair.pair_id),
                    short_name(steps_.front().pair_id));
  Condition& c = condition_of(pair);
  if (c.n_pairs > 0 && c.prompt != pair.prompt_id) c.end_prompt();
  c.prompt = pair.prompt_id;
  ++c.n_pairs;
  c.n_steps += static_cast<std::int64_t>(n_steps_);
  const StepRecord* flip_step = nullptr;
  for (std::size_t i = 0; i < n_steps_; ++i) {
    const StepRecord& step = steps_[i];
    if (step.same_prefix) {
      c.same_prefix.add(step.step, step.kl_on_off_nats);
      c.margins.add(step);
      if (pair.flip_index == step.step) flip_step = &step;
    }
    if (step.clock != Clock::forced) c.free_running.add(step.step, step.kl_on_off_nats);
  }
  c.prefix.add(pair);
  if (pair.flip_index && c.examples.size() < kExamplesPerCondition) c.examples.push_back(flip_example(pair, flip_step));
  n_steps_ = 0;
}

Json RunAggregates::finish() {
  Json out = Json::array();
  for (const auto& c : conditions_) {
    c->end_prompt();
    Json kl = Json::object();
    if (c->same_prefix.n() > 0) kl["same_prefix"] = c->same_prefix.to_json();
    if (c->free_running.n() > 0) kl["free_running"] = c->free_running.to_json();
    out.push_back({{"condition", c->name},
                   {"n_pairs", c->n_pairs},
                   {"n_steps", c->n_steps},
                   {"kl", std::move(kl)},
                   {"margins", c->margins.to_json()},
                   {"prefix", c->prefix.to_json()},
                   {"examples", c->examples}});
  }
  return out;
}

Json aggregate_records(const std::filesystem::path& records_file) {
  RunAggregates aggregates;
  for_each_line(records_file, {[&](const StepRecord& step) { aggregates.add(step); },
                               [&](const PairRecord& pair) { aggregates.add(pair); }});
  return aggregates.finish();
}

}  // namespace kvdiv
