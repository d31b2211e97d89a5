#pragma once
// Quantiles of a column that is too long to keep.
#include <cstdint>
#include <vector>

namespace kvdiv {

/// DDSketch (Masson, Rim & Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
/// PVLDB 12, 2019): counts in bins whose bounds are powers of γ = (1 + α)/(1 − α), so that a value is known to a
/// relative error of α. The counts do not depend on the order of the values, so quantiles do not either.
///
/// Takes finite values ≥ 0; one below kSmallest counts as 0, one above kLargest as kLargest. Memory: at most 4 bytes
/// for each of 5,800 bins, and only for those between the smallest and the largest value seen.
class QuantileSketch {
 public:
  static constexpr double kRelativeError = 0.01;
  static constexpr double kSmallest = 1e-40, kLargest = 1e10;

  void add(double value);
  void merge(const QuantileSketch& other);
  std::int64_t n() const { return n_; }
  /// The order statistic whose rank is nearest to (n − 1) q, within kRelativeError; the smallest and the largest value
  /// exactly. n > 0. (Rounded down, as in the paper, the upper end of a band over few prompts would leave out the top.)
  double quantile(double q) const;

 private:
  void make_room(int low, int high);

  std::int64_t n_ = 0, n_zero_ = 0;
  int first_ = 0;  ///< bin of counts_[0]
  std::vector<std::uint32_t> counts_;
  double min_ = 0.0, max_ = 0.0;
};

}  // namespace kvdiv
