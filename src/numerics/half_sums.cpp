#include "kvdiv/numerics/half_sums.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/random.h"
#include "kvdiv/numerics/half.h"

namespace kvdiv {
namespace {

using Values = std::span<const double>;

// Both accumulators round the exact sum once, although an FP64 addition comes before the FP16 rounding. Terms are
// halves or products of two halves: at most 22 bits, multiples of 2⁻⁴⁸.
// - FP32: such a product is a float, so the processor's FP32 addition is the rounding.
// - FP16: the FP64 sum is exact, or the product is below 2⁻³⁰ of the accumulator. (If the product is the larger one,
//   the sum has at most 41 bits unless it overflows.) Then both ways give back the accumulator: no tie is near.
template <Accumulator A>
struct Adder;
template <>
struct Adder<Accumulator::float16> {
  using Number = double;
  static double add(double a, double b) { return round_to_half(a + b); }
};
template <>
struct Adder<Accumulator::float32> {
  using Number = float;
  static float add(float a, float b) { return a + b; }
};
template <Accumulator A>
using Number = typename Adder<A>::Number;

template <Accumulator A>
Number<A> add(Number<A> a, Number<A> b) {
  return Adder<A>::add(a, b);
}

template <Accumulator A>
Number<A> product(double a, double b) {
  return static_cast<Number<A>>(a * b);  // exact in both
}

template <Accumulator A>
Number<A> sequential(Values a, Values b) {
  Number<A> sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum = add<A>(sum, product<A>(a[i], b[i]));
  return sum;
}

template <Accumulator A>
Number<A> pairwise(Values a, Values b) {
  if (a.size() <= 1) return sequential<A>(a, b);
  if (a.size() == 2)  // as below, without its calls: half of the time
    return add<A>(add<A>(0, product<A>(a[0], b[0])), add<A>(0, product<A>(a[1], b[1])));
  const std::size_t half = a.size() / 2;
  return add<A>(pairwise<A>(a.first(half), b.first(half)), pairwise<A>(a.subspan(half), b.subspan(half)));
}

/// Sequential sums of parts of `size` terms (the last may be shorter), added in order.
template <Accumulator A>
Number<A> in_parts(Values a, Values b, std::size_t size) {
  Number<A> sum = 0;
  for (std::size_t from = 0; from < a.size(); from += size) {
    const std::size_t n = std::min(size, a.size() - from);
    sum = add<A>(sum, sequential<A>(a.subspan(from, n), b.subspan(from, n)));
  }
  return sum;
}

template <Accumulator A>
Number<A> kahan(Values a, Values b) {
  Number<A> sum = 0, compensation = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Number<A> term = add<A>(product<A>(a[i], b[i]), -compensation);
    const Number<A> total = add<A>(sum, term);
    compensation = add<A>(add<A>(total, -sum), -term);
    sum = total;
  }
  return sum;
}

std::size_t part_size(std::size_t n) { return (n + kSumParts - 1) / kSumParts; }

template <Accumulator A>
double dot_in(Values a, Values b, SumOrder order) {
  switch (order) {
    case SumOrder::sequential:
      return sequential<A>(a, b);
    case SumOrder::pairwise:
      return pairwise<A>(a, b);
    case SumOrder::blocked:
      return in_parts<A>(a, b, kSumBlock);
    case SumOrder::split_k:
      return in_parts<A>(a, b, part_size(a.size()));
    case SumOrder::kahan:
      return kahan<A>(a, b);
  }
  fail(ErrorKind::internal, "ordered_dot: unknown order {}", static_cast<int>(order));
}

/// The roundings of each order, counted by the size of the partial sum that is rounded.
struct RoundingModel {
  std::vector<double> variance;  ///< [n + 1]; [k]: one rounding of a sum of k terms
  double leaf;                   ///< a term by itself

  double sequential(std::size_t n) const {
    double sum = leaf;
    for (std::size_t k = 2; k <= n; ++k) sum += variance[k];
    return sum;
  }
  double pairwise(std::size_t n) const {
    if (n == 1) return leaf;
    return pairwise(n / 2) + pairwise(n - n / 2) + variance[n];
  }
  double in_parts(std::size_t n, std::size_t size) const {
    double sum = 0.0;
    for (std::size_t from = 0; from < n; from += size) {
      const std::size_t terms = std::min(size, n - from);
      sum += sequential(terms) + (from > 0 ? variance[from + terms] : 0.0);
    }
    return sum;
  }
};

}  // namespace

double ordered_dot(Values a, Values b, SumOrder order, Accumulator accumulator) {
  if (a.size() != b.size()) fail(ErrorKind::internal, "ordered_dot: {} and {} terms", a.size(), b.size());
  if (accumulator == Accumulator::float16) return dot_in<Accumulator::float16>(a, b, order);
  return dot_in<Accumulator::float32>(a, b, order);
}

double rounding_variance(double sigma, Accumulator accumulator) {
  const bool is_half = accumulator == Accumulator::float16;
  const int mantissa = is_half ? 10 : 23, e_min = is_half ? -14 : -126;
  const int middle = std::ilogb(sigma);
  const auto below = [&](int e) { return std::erf(std::ldexp(1.0, e) / (sigma * std::sqrt(2.0))); };  // P(|X| < 2^e)
  const auto square_ulp = [&](int e) { return std::ldexp(1.0, 2 * (std::max(e, e_min) - mantissa)); };
  // What lies more than 12 binades below σ adds less than 1e-7 of the sum, what lies above 8 σ is not there.
  double probability = below(middle - 12), sum = probability * square_ulp(middle - 13);
  for (int e = middle - 12; e <= middle + 3; ++e) {
    const double next = below(e + 1);
    sum += (next - probability) * square_ulp(e);
    probability = next;
  }
  return sum / 12.0;
}

double sum_rounding_variance(SumOrder order, std::size_t n, double term_variance, Accumulator accumulator) {
  if (n == 0) return 0.0;
  RoundingModel model{std::vector<double>(n + 1), 0.0};
  for (std::size_t k = 1; k <= n; ++k)
    model.variance[k] = rounding_variance(std::sqrt(static_cast<double>(k) * term_variance), accumulator);
  if (accumulator == Accumulator::float16) model.leaf = model.variance[1];
  switch (order) {
    case SumOrder::sequential:
      return model.sequential(n);
    case SumOrder::pairwise:
      return model.pairwise(n);
    case SumOrder::blocked:
      return model.in_parts(n, kSumBlock);
    case SumOrder::split_k:
      return model.in_parts(n, part_size(n));
    case SumOrder::kahan:
      return static_cast<double>(n) * model.variance[1] + model.variance[n];
  }
  fail(ErrorKind::internal, "sum_rounding_variance: unknown order {}", static_cast<int>(order));
}

void fill_standard_normals(std::span<float> out, NormalPlace place) {
  constexpr std::array<std::uint32_t, 2> kKey{0x6b766469u, 0x6e6f726du};  // "kvdi", "norm"
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto normals = standard_normals(
        philox4x32({static_cast<std::uint32_t>(i / 4), place.trial, place.index, place.purpose}, kKey));
    std::copy_n(normals.begin(), std::min<std::size_t>(4, out.size() - i),
                out.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace kvdiv
