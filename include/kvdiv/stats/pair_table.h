#pragma once
// The records of a run as a table: a row per pair, and of every same-prefix step what decides whether it can flip. What
// experiments 3 and 4 are computed from, during a run or from its files.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/records.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {

struct PairRow {
  std::int32_t condition = 0;  ///< index into PairTable::conditions()
  std::int32_t prompt = 0;     ///< number of the prompt in this table: the cluster of its seeds
  std::string prompt_id;
  std::int64_t seed = 0;
  std::optional<std::int64_t> flip_index;
  bool diverged = false;
  std::int64_t n_same_prefix = 0, n_free_running = 0;
  std::optional<double> kl_same_prefix;   ///< mean KL(on‖off) over the same-prefix steps, nats
  std::optional<double> kl_free_running;  ///< the same over all steps of the free clock: the paper's mean
  std::optional<double> margin;           ///< mean margin_on over the same-prefix steps, logits
};

struct StepRow {
  std::int32_t pair = 0;  ///< index into rows()
  std::int32_t step = 0;
  double kl = 0.0, margin_on = 0.0, margin_off = 0.0, max_abs_dlogit = 0.0;
  bool top1_equal = true, flip = false, tie = false;
};

class PairTable {
 public:
  /// Step records of a pair come before its pair record, as in the file.
  void add(const StepRecord& record);
  void add(const PairRecord& record);

  const std::vector<PairRow>& rows() const { return rows_; }
  /// The same-prefix steps, in order.
  const std::vector<StepRow>& steps() const { return steps_; }
  /// "float16/torch/greedy", in order of first occurrence.
  const std::vector<std::string>& conditions() const { return conditions_; }
  std::vector<const PairRow*> of_condition(std::int32_t condition) const;
  /// Mean same-prefix KL by prompt id, over all pairs of the condition.
  std::map<std::string, double> kl_by_prompt(std::int32_t condition) const;

 private:
  std::vector<PairRow> rows_;
  std::vector<StepRow> steps_;
  std::vector<std::string> conditions_;
  std::map<std::string, std::int32_t> prompts_;
  CompensatedSum same_, free_, margin_;
  std::int64_t n_same_ = 0, n_free_ = 0;
};

}  // namespace kvdiv
