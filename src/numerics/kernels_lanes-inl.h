// Loads and stores that widen and round, and the tree that ends a sum over sixteen lanes. Included once for each target.
#if defined(KVDIV_NUMERICS_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVDIV_NUMERICS_KERNELS_LANES_INL_H_
#undef KVDIV_NUMERICS_KERNELS_LANES_INL_H_
#else
#define KVDIV_NUMERICS_KERNELS_LANES_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace kvdiv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F16 = hwy::float16_t;
using BF16 = hwy::bfloat16_t;

/// What a storage type is computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// At most sixteen lanes, since a sum has sixteen.
template <class W>
using WideTag = hn::CappedTag<W, 16>;

inline constexpr std::size_t kSumLanes = 16;

template <class D, class T>
HWY_INLINE hn::Vec<D> WidenLoad(D d, const T* HWY_RESTRICT from) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return hn::LoadU(d, from);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, D>(), from));
  }
}

/// To nearest, ties to even. (Highway's own conversion to bfloat16 truncates.)
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> ToBf16Bits(D d, hn::Vec<D> v) {
  const hn::Rebind<std::uint32_t, D> du;
  const hn::Rebind<std::int32_t, D> di;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
  // Adding to a NaN's bits could make an infinity of it.
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const auto is_nan = hn::RebindMask(du, hn::Ne(v, v));
  (void)d;
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(di, hn::IfThenElse(is_nan, quiet, rounded)));
}

template <class D, class T>
HWY_INLINE void RoundStore(D d, hn::Vec<D> v, T* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    hn::StoreU(v, d, to);
  } else if constexpr (std::is_same_v<T, BF16>) {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(ToBf16Bits(d, v), d16, reinterpret_cast<std::uint16_t*>(to));
  } else {
    const hn::Rebind<T, D> dt;
    hn::StoreU(hn::DemoteTo(dt, v), dt, to);
  }
}

/// The storage type's nearest number, widened again.
template <class T, class D>
HWY_INLINE hn::Vec<D> Rounded(D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return v;
  } else if constexpr (std::is_same_v<T, BF16>) {
    const hn::Rebind<std::uint32_t, D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, ToBf16Bits(d, v))));
  } else {
    return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<T, D>(), v));
  }
}

/// One number, by way of a vector: the same rounding.
template <class T, class W>
HWY_INLINE W RoundOne(W x) {
  const WideTag<W> d;
  return hn::GetLane(Rounded<T>(d, hn::Set(d, x)));
}

/// Calls f(i, load, store) for all vectors of n elements: `load(pointer)` widens the vector at element i, `store(vector,
/// pointer)` rounds it there. The last, short vector goes through padded memory: the same instructions as the others.
template <class W, class F>
HWY_INLINE void ForVectors(std::int64_t n, F f) {
  const WideTag<W> d;
  const auto N = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + N <= n; i += N)
    f(
        i, [&](const auto* from) HWY_ATTR { return WidenLoad(d, from + i); },
        [&](hn::Vec<WideTag<W>> v, auto* to) HWY_ATTR { RoundStore(d, v, to + i); });
  if (i == n) return;
  const auto rest = static_cast<std::size_t>(n - i);
  f(
      i,
      [&](const auto* from) HWY_ATTR {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
        T padded[kSumLanes] = {};
        std::memcpy(padded, from + i, rest * sizeof(T));
        return WidenLoad(d, padded);
      },
      [&](hn::Vec<WideTag<W>> v, auto* to) HWY_ATTR {
        using T = std::remove_pointer_t<decltype(to)>;
        T padded[kSumLanes];
        RoundStore(d, v, padded);
        std::memcpy(to + i, padded, rest * sizeof(T));
      });
}

/// Sixteen lanes to one: neighbours are added, four times.
template <class W>
HWY_INLINE W AddLanes(W* HWY_RESTRICT lanes) {
  for (std::size_t n = kSumLanes / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  return lanes[0];
}

/// The same tree over sixteen vectors at once, in which every key's sixteen lanes lie one after the other: one vector with a
/// sum in each lane. `get(i)` gives vector i; depth first, so that few are alive.
template <int kLevels, class D, class F>
HWY_INLINE hn::Vec<D> AddNeighbours(D d, F get, std::size_t i) {
  if constexpr (kLevels == 0) {
    return get(i);
  } else {
    const auto low = AddNeighbours<kLevels - 1>(d, get, i);
    const auto high = AddNeighbours<kLevels - 1>(d, get, i + (std::size_t{1} << (kLevels - 1)));
    return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
  }
}

/// Σ term(vector i) over n elements in sixteen lanes: element i goes to lane i mod 16. `term(accumulator, i, load)` adds
/// the vector at element i; a short rest is padded with zeros, which must add nothing.
template <class W, class F>
HWY_INLINE W SumLanes(std::int64_t n, F term) {
  const WideTag<W> d;
  HWY_ALIGN W lanes[kSumLanes] = {};
  ForVectors<W>(n, [&](std::int64_t i, auto load, auto) HWY_ATTR {
    W* const lane = lanes + static_cast<std::size_t>(i) % kSumLanes;
    hn::StoreU(term(hn::LoadU(d, lane), i, load), d, lane);
  });
  return AddLanes(lanes);
}

}  // namespace kvdiv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
