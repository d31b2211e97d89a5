#include "kvdiv/stats/pair_table.h"

#include <algorithm>
#include <cmath>

namespace kvdiv {
namespace {

std::optional<double> mean_of(const CompensatedSum& sum, std::int64_t n) {
  return n > 0 ? std::optional(sum.value() / static_cast<double>(n)) : std::nullopt;
}

}  // namespace

void PairTable::add(const StepRecord& r) {
  if (!std::isfinite(r.kl_on_off_nats)) return;
  if (r.clock != Clock::forced) {
    free_.add(r.kl_on_off_nats);
    ++n_free_;
  }
  if (!r.same_prefix) return;
  same_.add(r.kl_on_off_nats);
  if (std::isfinite(r.margin_on)) margin_.add(r.margin_on);
  ++n_same_;
  steps_.push_back({static_cast<std::int32_t>(rows_.size()), static_cast<std::int32_t>(r.step), r.kl_on_off_nats,
                    r.margin_on, r.margin_off, r.max_abs_dlogit, r.top1_equal, r.token_on != r.token_off,
                    r.tie_on || r.tie_off});
}

void PairTable::add(const PairRecord& r) {
  PairRow row;
  const auto at = std::find(conditions_.begin(), conditions_.end(), r.condition);
  row.condition = static_cast<std::int32_t>(at - conditions_.begin());
  if (at == conditions_.end()) conditions_.push_back(r.condition);
  row.prompt = prompts_.try_emplace(r.prompt_id, static_cast<std::int32_t>(prompts_.size())).first->second;
  row.prompt_id = r.prompt_id;
  row.seed = r.seed;
  row.flip_index = r.flip_index;
  row.diverged = r.diverged;
  row.n_same_prefix = n_same_;
  row.n_free_running = n_free_;
  row.kl_same_prefix = mean_of(same_, n_same_);
  row.kl_free_running = mean_of(free_, n_free_);
  row.margin = mean_of(margin_, n_same_);
  rows_.push_back(std::move(row));
  same_ = free_ = margin_ = {};
  n_same_ = n_free_ = 0;
}

std::vector<const PairRow*> PairTable::of_condition(std::int32_t condition) const {
  std::vector<const PairRow*> out;
  for (const PairRow& row : rows_)
    if (row.condition == condition) out.push_back(&row);
  return out;
}

std::map<std::string, double> PairTable::kl_by_prompt(std::int32_t condition) const {
  std::map<std::string, std::pair<CompensatedSum, std::int64_t>> sums;
  for (const StepRow& step : steps_) {
    const PairRow& row = rows_[static_cast<std::size_t>(step.pair)];
    if (row.condition != condition) continue;
    auto& [sum, n] = sums[row.prompt_id];
    sum.add(step.kl);
    ++n;
  }
  std::map<std::string, double> out;
  for (const auto& [id, entry] : sums) out[id] = entry.first.value() / static_cast<double>(entry.second);
  return out;
}

}  // namespace kvdiv
