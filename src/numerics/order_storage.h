#pragma once
// Element types of tensors, and what is computed in for each: FP32, or double for float64.
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kvdiv/base/error.h"
#include "order_kernels.h"
#include "order_sums.h"

namespace kvdiv {

template <class S>
using Wide = std::conditional_t<std::is_same_v<S, double>, double, float>;

/// Calls f(S{}) for the element type of a dtype.
template <class F>
void with_storage(at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kHalf:
      return f(c10::Half{});
    case at::kBFloat16:
      return f(c10::BFloat16{});
    case at::kFloat:
      return f(float{});
    case at::kDouble:
      return f(double{});
    default:
      fail(ErrorKind::internal, "no arithmetic for the dtype {}", c10::toString(dtype));
  }
}

/// Exact: every storage is contained in its wide type.
template <class S>
void widen(const S* in, std::size_t n, Wide<S>* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Wide<S>>(in[i]);
}

/// The rounding of a result as it is stored.
template <class S>
void narrow(const Wide<S>* in, std::size_t n, S* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<S>(in[i]);
}

/// A sum of squares, or of exponentials: order as in the spec, accumulator FP32 (double for float64).
template <class W>
W wide_dot(std::span<const W> a, std::span<const W> b, const ReductionSpec& spec) {
  return OrderedDot<PlainSums<W>, W>(a, b).in(spec);
}

/// e^(x − max) of a row in place, and their sum. FP64's exp, rounded: the bits of an element depend on nothing but its
/// value and the maximum.
template <class W>
W exponentials(std::span<W> row, const ReductionSpec& spec) {
  W largest = row.front();
  for (const W x : row)
    if (!(x <= largest)) largest = x;  // a NaN stays
  for (W& x : row) x = static_cast<W>(std::exp(static_cast<double>(x - largest)));
  const std::vector<W> ones(row.size(), W{1});
  return wide_dot<W>(row, ones, spec);
}

/// cap·tanh(x/cap), rounded to storage after each of the three.
template <class S>
S soft_capped(S x, Wide<S> cap) {
  const auto quotient = static_cast<S>(static_cast<Wide<S>>(x) / cap);
  const auto bent = static_cast<S>(static_cast<Wide<S>>(std::tanh(static_cast<double>(quotient))));
  return static_cast<S>(static_cast<Wide<S>>(bent) * cap);
}

}  // namespace kvdiv
