#pragma once
// A running sum that carries its rounding error along.
#include <cstdint>

namespace kvdiv {

/// Compensated sum: each addition's rounding error is recovered exactly (Knuth's TwoSum) and added at the end, so the
/// result of n terms of one sign is good to about one ulp whatever n is (plain summation: up to n ulp). Terms must be
/// finite: an infinity leaves NaN behind. Needs a build without -ffast-math, as all of kvdiv is.
class CompensatedSum {
 public:
  void add(double x) {
    const double total = sum_ + x;
    const double seen = total - sum_;
    error_ += (sum_ - (total - seen)) + (x - seen);
    sum_ = total;
  }
  double value() const { return sum_ + error_; }

 private:
  double sum_ = 0.0, error_ = 0.0;
};

}  // namespace kvdiv
