#include "kvdiv/numerics/half_sums.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/random.h"

namespace kvdiv {
namespace {

std::size_t part_size(std::size_t n) {
  constexpr auto parts = static_cast<std::size_t>(kSumParts);
  return (n + parts - 1) / parts;
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

double ordered_dot(std::span<const double> a, std::span<const double> b, SumOrder order, Accumulator accumulator) {
  return ordered_dot(a, b, half_sum_spec(order, accumulator), DType::float16);
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
      return model.in_parts(n, static_cast<std::size_t>(kSumBlock));
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
