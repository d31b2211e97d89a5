#pragma once
// The float64 control of `run`: pairs that differed most are decoded again where rounding is too small to matter. What
// vanishes is rounding; what stays is looked into.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common_diagnosis.h"
#include "common_setup.h"
#include "kvdiv/experiments/run.h"
#include "verdict.h"

namespace kvdiv {

/// A pair whose arms were not bit-equal.
struct DifferingPair {
  Condition condition;
  std::string prompt_id;
  std::int64_t seed = 0;
  double mean_kl_nats = 0.0;    ///< over its same-prefix steps
  std::int64_t worst_step = 0;  ///< the one with the largest KL
};

/// Adds up the same-prefix steps of one pair.
class PairTally {
 public:
  void add(const StepRecord& record);
  /// None if every step was bit-equal.
  std::optional<DifferingPair> take(const Condition& condition, const std::string& prompt_id, std::int64_t seed) const;

 private:
  double sum_ = 0.0, largest_ = -1.0;
  std::int64_t n_ = 0, worst_step_ = 0;
  bool differs_ = false;
};

/// At most this many pairs are decoded again, but one for each backend and strategy that differed.
inline constexpr std::size_t kFp64Pairs = 4;

/// Keeps, of each backend and strategy, the pairs of the highest mean KL, whatever their dtype.
class DifferingPairs {
 public:
  void add(const DifferingPair& pair);
  /// The highest first, per backend and strategy.
  std::vector<DifferingPair> sample() const;
  bool empty() const { return kept_.empty(); }

 private:
  std::vector<DifferingPair> kept_;
};

/// The control's numbers from those of its pairs: the backend or strategy with most left decides.
Fp64Check total_of(std::vector<Fp64Pair> pairs);

/// What the pair is called in the control, whatever its dtype: "torch/greedy/gsm8k-5/s0".
std::string fp64_name_of(const DifferingPair& pair);

/// Decodes the pairs again in float64, by their own backend where it has float64, else by torch. Null, with a warning,
/// if that does not fit into memory.
std::optional<Fp64Check> check_in_float64(Context& context, const RunParams& params,
                                          std::span<const DifferingPair> pairs);

/// Where the arms part, and what that looks like: for a difference that float64 does not remove.
Diagnosis diagnose_pairs(Context& context, const RunParams& params, std::span<const DifferingPair> pairs);

}  // namespace kvdiv
