// Row operations: norms, attention's rows, softmax, activations. Included once for each target.
#if defined(KVDIV_NUMERICS_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVDIV_NUMERICS_KERNELS_ROWS_INL_H_
#undef KVDIV_NUMERICS_KERNELS_ROWS_INL_H_
#else
#define KVDIV_NUMERICS_KERNELS_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvdiv::HWY_NAMESPACE {

template <class T>
void RmsNorm(const NormCall& call) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto* const x = static_cast<const T*>(call.x);
  const auto* const weight = static_cast<const T*>(call.weight);
  auto* const y = static_cast<T*>(call.y);
  const W sum = SumLanes<W>(call.C, [&](auto total, std::int64_t, auto load) HWY_ATTR {
    const auto v = load(x);
    return hn::MulAdd(v, v, total);
  });
  const auto scale = hn::Set(d, W{1} / std::sqrt(sum / static_cast<W>(call.C) + static_cast<W>(call.eps)));
  const auto offset = hn::Set(d, static_cast<W>(call.offset));
  if (call.round_before_weight)
    ForVectors<W>(call.C, [&](std::int64_t, auto load, auto store) HWY_ATTR {
      const auto gain = call.offset == 0.0 ? load(weight) : Rounded<T>(d, hn::Add(load(weight), offset));
      store(hn::Mul(gain, Rounded<T>(d, hn::Mul(load(x), scale))), y);
    });
  else
    ForVectors<W>(call.C, [&](std::int64_t, auto load, auto store)
                              HWY_ATTR { store(hn::Mul(hn::Mul(load(x), scale), hn::Add(load(weight), offset)), y); });
}

template <class T>
void Widen(const T* x, std::int64_t n, std::int64_t padded, Wide<T>* out) {
  ForVectors<Wide<T>>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(load(x), out); });
  std::fill(out + n, out + padded, Wide<T>{0});
}

template <class T>
void Narrow(const Wide<T>* x, std::int64_t n, T* out) {
  ForVectors<Wide<T>>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(load(x), out); });
}

/// A vector of keys at a time: sixteen lanes a key over d, then one tree for all of them.
template <class T>
void Products(const ScoreCall& call) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto N = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* const q = static_cast<const W*>(call.q);
  const auto* const keys = static_cast<const W*>(call.keys);
  auto* const scores = static_cast<W*>(call.scores);
  const std::int64_t row = padded_row(call.D);
  const auto scale = hn::Set(d, static_cast<W>(call.scale));
  for (std::int64_t first = 0; first < call.n; first += N) {
    const auto lanes_of_key = [&](std::size_t i) HWY_ATTR {
      const std::int64_t parts = 16 / N, key = static_cast<std::int64_t>(i) / parts;
      const std::int64_t at = static_cast<std::int64_t>(i) % parts * N;
      // Behind the last key: that one again, for results that are overwritten or not read.
      const W* const k = keys + std::min(first + key, call.n - 1) * row;
      auto sum = hn::Zero(d);
      for (std::int64_t c = at; c < row; c += 16) sum = hn::MulAdd(hn::LoadU(d, q + c), hn::LoadU(d, k + c), sum);
      return sum;
    };
    const auto product = AddNeighbours<4>(d, lanes_of_key, 0);
    hn::StoreU(Rounded<T>(d, hn::Mul(Rounded<T>(d, product), scale)), d, scores + first);
  }
}

/// cap·tanh(x/cap), rounded after each of the three.
template <class T, class D>
HWY_INLINE hn::Vec<D> Capped(D d, hn::Vec<D> x, hn::Vec<D> cap) {
  return Rounded<T>(d, hn::Mul(Rounded<T>(d, hn::Tanh(d, Rounded<T>(d, hn::Div(x, cap)))), cap));
}

template <class T>
void CapScores(const ScoreCall& call) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto cap = hn::Set(d, static_cast<W>(call.cap));
  auto* const scores = static_cast<W*>(call.scores);
  ForVectors<W>(call.n,
                [&](std::int64_t, auto load, auto store) HWY_ATTR { store(Capped<T>(d, load(scores), cap), scores); });
}

/// The largest of n numbers: the same whatever the order, but NaN is kept by nobody's choice; a NaN ends a run anyway.
template <class W, class T>
HWY_INLINE W Largest(const T* x, std::int64_t n) {
  const WideTag<W> d;
  HWY_ALIGN W lanes[kSumLanes] = {};
  auto largest = hn::Set(d, -std::numeric_limits<W>::infinity());
  const auto N = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + N <= n; i += N) largest = hn::Max(largest, WidenLoad(d, x + i));
  hn::StoreU(largest, d, lanes);
  W out = -std::numeric_limits<W>::infinity();
  for (std::int64_t l = 0; l < N; ++l) out = std::max(out, lanes[l]);
  if (i == n) return out;
  T rest[kSumLanes] = {};
  std::copy(x + i, x + n, rest);
  hn::StoreU(WidenLoad(d, rest), d, lanes);
  for (std::int64_t l = 0; l < n - i; ++l) out = std::max(out, lanes[l]);
  return out;
}

template <class T>
void Softmax(Wide<T>* scores, std::int64_t n) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto N = static_cast<std::int64_t>(hn::Lanes(d));
  const auto largest = hn::Set(d, Largest<W>(scores, n));
  // Behind the last score: −inf, whose exponential adds nothing.
  std::fill(scores + n, scores + padded_row(n), -std::numeric_limits<W>::infinity());
  HWY_ALIGN W lanes[kSumLanes] = {};
  for (std::int64_t i = 0; i < n; i += N) {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + i), largest));
    hn::StoreU(e, d, scores + i);
    W* const lane = lanes + i % 16;
    hn::StoreU(hn::Add(hn::LoadU(d, lane), e), d, lane);
  }
  const auto sum = hn::Set(d, AddLanes(lanes));
  for (std::int64_t i = 0; i < n; i += N)
    hn::StoreU(Rounded<T>(d, hn::Div(hn::LoadU(d, scores + i), sum)), d, scores + i);
}

/// `kVectors` vectors of the mix, from element `at` on.
template <int kVectors, class T, class D>
HWY_INLINE void MixVectors(D d, const MixCall& call, std::int64_t at, hn::TFromD<D>* HWY_RESTRICT out) {
  using W = hn::TFromD<D>;
  const std::size_t N = hn::Lanes(d);
  const std::int64_t row = padded_row(call.D);
  const auto* const weights = static_cast<const W*>(call.weights);
  const auto* v = static_cast<const W*>(call.values) + at;
  hn::Vec<D> sum[kVectors];
  HWY_UNROLL(32)
  for (int i = 0; i < kVectors; ++i) sum[i] = hn::Zero(d);
  for (std::int64_t j = 0; j < call.n; ++j, v += row) {
    if (weights[j] == W{0}) continue;
    const auto w = hn::Set(d, weights[j]);
    HWY_UNROLL(32)
    for (int i = 0; i < kVectors; ++i)
      sum[i] = hn::MulAdd(w, hn::LoadU(d, v + static_cast<std::size_t>(i) * N), sum[i]);
  }
  HWY_UNROLL(32)
  for (int i = 0; i < kVectors; ++i) hn::StoreU(sum[i], d, out + static_cast<std::size_t>(i) * N);
}

template <class T>
void Mix(const MixCall& call) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto N = static_cast<std::int64_t>(hn::Lanes(d));
  auto* const out = static_cast<T*>(call.out);
  HWY_ALIGN W wide[4 * kSumLanes];
  const std::int64_t row = padded_row(call.D);
  for (std::int64_t at = 0; at < row;) {
    const bool four = at + 4 * N <= row;
    if (four)
      MixVectors<4, T>(d, call, at, wide);
    else
      MixVectors<1, T>(d, call, at, wide);
    const std::int64_t n = std::min(four ? 4 * N : N, call.D - at);
    if (n > 0) Narrow<T>(wide, n, out + at);
    at += four ? 4 * N : N;
  }
}

template <class T>
void LogSoftmax(const T* x, std::int64_t n, Wide<T>* out) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto largest = hn::Set(d, Largest<W>(x, n));
  // The exponentials first, in full vectors; then their sum, whose short rest is padded with zeros.
  ForVectors<W>(
      n, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(hn::Exp(d, hn::Sub(load(x), largest)), out); });
  const W sum = SumLanes<W>(n, [&](auto total, std::int64_t, auto load) HWY_ATTR { return hn::Add(total, load(out)); });
  const auto log_sum = hn::Log(d, hn::Set(d, sum));
  ForVectors<W>(n, [&](std::int64_t, auto load, auto store)
                       HWY_ATTR { store(hn::Sub(hn::Sub(load(x), largest), log_sum), out); });
}

template <class T>
void SiluTimes(const T* gate, const T* up, std::int64_t n, T* out) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto one = hn::Set(d, W{1});
  // Beyond this exp is infinite and x/(1 + inf) is the right −0; Highway's exp is defined no further.
  const auto limit = hn::Set(d, static_cast<W>(sizeof(W) == 8 ? 706.0 : 104.0));
  ForVectors<W>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR {
    const auto x = load(gate);
    const auto e = hn::Exp(d, hn::Min(hn::Neg(x), limit));
    store(hn::Mul(Rounded<T>(d, hn::Div(x, hn::Add(one, e))), load(up)), out);
  });
}

/// ½x(1 + tanh(√(2/π)(x + 0.044715x³))): the "tanh" GELU, in the reference's grouping.
template <class T>
void GeluTimes(const T* gate, const T* up, std::int64_t n, T* out) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto half = hn::Set(d, W(0.5)), one = hn::Set(d, W{1});
  const auto cubic = hn::Set(d, static_cast<W>(0.044715)), factor = hn::Set(d, static_cast<W>(0.79788456080286535588));
  ForVectors<W>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR {
    const auto x = load(gate);
    const auto cube = hn::Mul(hn::Mul(x, x), x);
    const auto tanh = hn::Tanh(d, hn::Mul(factor, hn::MulAdd(cubic, cube, x)));
    store(hn::Mul(Rounded<T>(d, hn::Mul(hn::Mul(half, x), hn::Add(one, tanh))), load(up)), out);
  });
}

template <class T>
void SoftCap(const T* x, double cap, std::int64_t n, T* out) {
  using W = Wide<T>;
  const WideTag<W> d;
  const auto c = hn::Set(d, static_cast<W>(cap));
  ForVectors<W>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(Capped<T>(d, load(x), c), out); });
}

}  // namespace kvdiv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
