#pragma once
// A running sum that carries its rounding error along.
#include <cstdint>

#include "kvdiv/base/host_device.h"

namespace kvdiv {

/// a + b rounded once. In CUDA code the addition is not fused with a product that is `b` (a compiler's default there).
KVDIV_HOST_DEVICE inline double rounded_sum(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

/// Compensated sum: each addition's rounding error is recovered exactly (Knuth's TwoSum) and added at the end, so the
/// result of n terms of one sign is good to about one ulp whatever n is (plain summation: up to n ulp). Terms must be
/// finite: an infinity leaves NaN behind. Needs a build without -ffast-math, as all of kvdiv is.
class CompensatedSum {
 public:
  KVDIV_HOST_DEVICE void add(double x) {
    const double total = rounded_sum(sum_, x);
    const double seen = rounded_sum(total, -sum_);
    error_ += (sum_ - (total - seen)) + rounded_sum(-seen, x);
    sum_ = total;
  }
  /// Adds the terms of another sum: one more addition, whose rounding error is recovered as well.
  KVDIV_HOST_DEVICE void merge(const CompensatedSum& other) {
    add(other.sum_);
    error_ += other.error_;
  }
  KVDIV_HOST_DEVICE double value() const { return sum_ + error_; }

 private:
  double sum_ = 0.0, error_ = 0.0;
};

}  // namespace kvdiv
