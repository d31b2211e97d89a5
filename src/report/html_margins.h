#pragma once
// Margins against logit differences, and how long the common prefix of a pair lives.
#include <cstdint>
#include <map>
#include <utility>

#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"

namespace kvdiv {

/// Same-prefix steps by ON's margin and max |Δlogit|, in cells of an eighth of a decade on each side. The largest logit
/// can only change where margin ≤ 2·max|Δlogit|. Memory: at most one entry for each of 240 × 240 cells.
class MarginMap {
 public:
  static constexpr int kCellsPerDecade = 8;

  void add(const StepRecord& step);
  /// {cells_per_decade, n_steps, n_equal: no logit differs, n_tied: the margin is 0, n_nonfinite, n_can_change: margin
  /// ≤ 2·max|Δlogit| and a logit differs, n_changed: the largest logit did change, cells: [[i, j, n, n_changed], …]};
  /// cell (i, j) begins at margin 10^(i/8) and max|Δlogit| 10^(j/8), and the map holds the steps with both above 0.
  Json to_json() const;

 private:
  struct Count {
    std::int64_t n = 0, n_changed = 0;
  };
  std::int64_t n_ = 0, n_equal_ = 0, n_tied_ = 0, n_nonfinite_ = 0, n_can_change_ = 0, n_changed_ = 0;
  std::map<std::pair<int, int>, Count> cells_;
};

/// Flips by step, and the share of pairs whose prefix is still common (Kaplan & Meier, "Nonparametric estimation from
/// incomplete observations", JASA 53, 1958: a pair that ends without a flip is observed until its end). Memory: one
/// entry for each step at which a pair flipped or ended.
class PrefixSurvival {
 public:
  static constexpr std::int64_t kMaxBars = 64;
  static constexpr std::size_t kMaxPoints = 400;

  void add(const PairRecord& pair);
  /// {n_pairs, n_flipped, bars: {width, n: [flips at steps i·width … (i+1)·width − 1]}, survival: [[step, share of
  /// pairs that are still common after it, pairs at risk, flips], …], last_step}
  Json to_json() const;

 private:
  struct Ends {
    std::int64_t n_flips = 0;  ///< at this step
    std::int64_t n_ended = 0;  ///< whose last step is the one before
  };
  Json bars() const;
  Json survival() const;

  std::int64_t n_pairs_ = 0, n_flipped_ = 0;
  std::map<std::int64_t, Ends> ends_;
};

}  // namespace kvdiv
