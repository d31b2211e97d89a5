#include "run_summary.h"

#include <algorithm>

#include "run_family.h"

namespace kvdiv {

void RunSummary::begin(const Condition& c) {
  condition_ = c;
  accumulator_.emplace(std::string(name_of(c.dtype)), c.backend, std::string(name_of(c.strategy)), params_.clock);
  pair_ = {};
  max_abs_activation_.reset();
}

void RunSummary::add(const StepRecord& record) {
  accumulator_->add(record);
  pair_.add(record);
  if (record.step == 0 && !record.bit_equal) tally_.prefill_bit_equal = false;
}

void RunSummary::add(const PairRecord& record) {
  accumulator_->add(record);
  if (const auto differing = pair_.take(condition_, record.prompt_id, record.seed)) differing_.add(*differing);
  pair_ = {};
  tally_.n_tokens_on += record.n_tokens_computed_on;
  tally_.n_tokens_off += record.n_tokens_computed_off;
  if (record.nonfinite) note_nonfinite(record);
  if (!record.max_abs_activation) return;
  if (!max_abs_activation_) max_abs_activation_.emplace(record.max_abs_activation->size(), 0.0);
  const std::size_t n = std::min(max_abs_activation_->size(), record.max_abs_activation->size());
  for (std::size_t i = 0; i < n; ++i)
    (*max_abs_activation_)[i] = std::max((*max_abs_activation_)[i], (*record.max_abs_activation)[i]);
}

void RunSummary::note_nonfinite(const PairRecord& record) {
  const NonfiniteStop& stop = *record.nonfinite;
  const std::string where = stop.layer == 0               ? "embeddings"
                            : stop.layer <= n_layers_     ? fmt::format("layer {} of {}", stop.layer, n_layers_)
                            : stop.layer == n_layers_ + 1 ? "final norm"
                                                          : "output head";
  const std::string text = fmt::format(
      "{}, prompt {}: arm {} is not finite at step {}, first in the {}; largest |activation| before it {:.4g}",
      condition_.name(), record.prompt_id, stop.arm == Arm::on ? "ON" : "OFF", stop.step, where, stop.max_abs_before);
  warnings_.add(WarningCode::nonfinite_logits, text);
  nonfinite_.push_back("non-finite logits in " + text);
}

void RunSummary::finish_condition(Json timing) {
  const ConditionSummary summary = accumulator_->finish();
  Json j = to_json_value(summary);
  if (params_.clock == Clock::forced) j["free_running"] = j["after_flip"] = nullptr;  // not run is not zero
  mcnemar_.push_back(summary.mcnemar);
  j["timing"] = std::move(timing);
  if (max_abs_activation_) j["max_abs_activation"] = to_json_value(*max_abs_activation_);
  conditions_.push_back(std::move(j));
  const auto& s = summary.same_prefix;
  if (s.tie_flips > 0)
    warnings_.add(WarningCode::ties, fmt::format("{}: flips caused by ties: {}", condition_.name(), s.tie_flips));
  inputs_.push_back({condition_.name(), condition_.dtype, s.n_steps, s.flips, s.bit_equal_rate.value_or(1.0),
                     s.kl_on_off_nats.mean.value_or(0.0), s.max_abs_dlogit.max.value_or(0.0)});
}

void RunSummary::finish() { adjust_family(conditions_, mcnemar_); }

std::vector<std::string> RunSummary::problems() const {
  std::vector<std::string> out = nonfinite_;
  for (const std::string& name : tally_.failed()) out.push_back("control " + name + " failed");
  return out;
}

}  // namespace kvdiv
