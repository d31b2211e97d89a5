#pragma once
// What each remedy buys and costs, over prompts; which are on the Pareto front.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/stats/metrics.h"
#include "mitigate_remedies.h"

namespace kvdiv {

/// Two speeds that differ by no more than this share are not told apart: a machine is not steadier.
inline constexpr double kSameSpeed = 0.05;

/// A remedy on a prompt.
struct MeasuredText {
  std::vector<StepMetrics> steps;
  double seconds_on = 0.0, seconds_off = 0.0;
  std::optional<std::int64_t> n_on_as_without;
  std::vector<double> off_to_fp64,
      on_to_fp64;  ///< KL(float64‖arm) of the first steps; empty for most
                   ///< prompts
};

MitigateRecord record_of(const Remedy& remedy, const MeasuredText& measured);

/// What remedies are held against each other by.
struct Price {
  double kl_nats = 0.0;          ///< smaller is better
  double on_tokens_per_s = 0.0;  ///< larger is better, from kSameSpeed on
  std::uint64_t bytes = 0;       ///< smaller is better
  bool operator==(const Price&) const = default;
};

/// a is at least as good in all three (a speed: not slower by more than kSameSpeed) and better in one. Not transitive:
/// a chain of speeds that are each the same as the next may end at one that is not. It has no cycles, so a front is
/// never empty.
bool dominates(const Price& a, const Price& b);
/// Whether each is dominated by none of the others.
std::vector<bool> pareto_front(std::span<const Price> prices);

class MitigateSummary {
 public:
  explicit MitigateSummary(std::size_t n_remedies) : tallies_(n_remedies) {}
  void add(std::size_t remedy, std::int32_t prompt, const MeasuredText& measured);

  /// A row a remedy. `length`: positions that the bytes are of.
  Json rows(const std::vector<Remedy>& remedies, const ModelConfig& config, const MitigateParams& params,
            std::int64_t length) const;

 private:
  struct Tally {
    std::vector<double> kl, dlogit, off_to_fp64, on_to_fp64;
    std::vector<std::int32_t> prompts, fp64_prompts;
    std::int64_t n_bit_equal = 0, flips = 0, tie_flips = 0;
    std::optional<std::int64_t> n_on_as_without;
    double seconds_on = 0.0, seconds_off = 0.0;
  };
  static Json row(const Tally& tally, const Remedy& remedy);
  void add_ratios(Json& rows) const;

  std::vector<Tally> tallies_;
};

/// `rows` and `search` (or null) of the condition → {kind, sentence}.
Json mitigate_verdict(const Json& condition, const Json& controls, double max_kl);

}  // namespace kvdiv
