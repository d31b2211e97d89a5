#pragma once
// The orders of summation, term by term: the definition that vectorised kernels are held to, and what the short sums of a
// norm or a softmax use directly.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/reduction.h"

namespace kvdiv {

/// The half nearest to the exact sum of two doubles. An inexact FP64 sum is first rounded to odd (of its two neighbours the
/// one whose last bit is set): FP64 has more than two bits beyond a half, so the second rounding then sees every tie as
/// it is. (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.)
inline double sum_to_half(double a, double b) {
  double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);  // exact (Knuth's two-sum); NaN where the sum is infinite
  if (std::fabs(error) > 0.0) {
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    const bool outward = (error > 0.0) == (sum > 0.0);
    if ((bits & 1) == 0) sum = std::bit_cast<double>(outward ? bits + 1 : bits - 1);
  }
  return round_to_half(sum);
}

/// What an accumulator does. `fma`: a·b + c, rounded once. Operands are FP32 numbers at most where products must be exact.
template <class T>
struct PlainSums {  // float or double
  using Number = T;
  static T add(T a, T b) { return a + b; }
  static T fma(T a, T b, T c) { return std::fma(a, b, c); }
};
struct HalfSums {
  using Number = double;
  static double add(double a, double b) { return sum_to_half(a, b); }
  static double fma(double a, double b, double c) { return sum_to_half(a * b, c); }  // 48 bits: the product is exact
};

/// One dot product; X is the operands' type.
template <class Sums, class X>
class OrderedDot {
 public:
  using Number = typename Sums::Number;
  OrderedDot(std::span<const X> a, std::span<const X> b) : a_(a), b_(b) {}

  Number in(const ReductionSpec& spec) const {
    const std::size_t n = a_.size(), number = static_cast<std::size_t>(spec.n);
    switch (spec.order) {
      case SumOrder::sequential:
        return sequential(0, n);
      case SumOrder::pairwise:
        return pairwise(0, n);
      case SumOrder::blocked:
        return in_parts(number);
      case SumOrder::split_k:
        return in_parts((n + number - 1) / number);
      case SumOrder::kahan:
        return kahan();
    }
    fail(ErrorKind::internal, "unknown order of summation {}", static_cast<int>(spec.order));
  }

 private:
  Number term(std::size_t i, Number onto) const {
    return Sums::fma(static_cast<Number>(a_[i]), static_cast<Number>(b_[i]), onto);
  }
  Number sequential(std::size_t from, std::size_t n) const {
    Number sum = 0;
    for (std::size_t i = from; i < from + n; ++i) sum = term(i, sum);
    return sum;
  }
  Number pairwise(std::size_t from, std::size_t n) const {
    if (n <= 1) return sequential(from, n);
    if (n == 2) return Sums::add(term(from, 0), term(from + 1, 0));  // as below, without its calls: half of the time
    return Sums::add(pairwise(from, n / 2), pairwise(from + n / 2, n - n / 2));
  }
  Number in_parts(std::size_t size) const {
    Number sum = 0;
    for (std::size_t from = 0; from < a_.size(); from += size)
      sum = Sums::add(sum, sequential(from, std::min(size, a_.size() - from)));
    return sum;
  }
  Number kahan() const {
    Number sum = 0, compensation = 0;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const Number t = term(i, -compensation);
      const Number total = Sums::add(sum, t);
      compensation = Sums::add(Sums::add(total, -sum), -t);
      sum = total;
    }
    return sum;
  }

  std::span<const X> a_, b_;
};

}  // namespace kvdiv
