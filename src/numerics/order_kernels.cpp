#include "order_kernels.h"

// Compiled once for each instruction set by foreach_target.h; the CPU chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "order_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kvdiv/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace kvdiv {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// x·w + sum by lane, rounded once. Never a product and an addition: they round twice where the product is not exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multiply_add(D d, V x, V w, V sum) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(x, w, sum);
#else
  using T = hn::TFromD<D>;
  HWY_ALIGN T a[HWY_MAX_BYTES / sizeof(T)], b[HWY_MAX_BYTES / sizeof(T)], c[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(x, d, a);
  hn::Store(w, d, b);
  hn::Store(sum, d, c);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return hn::Load(d, c);
#endif
}

/// FP32 and double accumulators; operands and accumulator are of one type.
template <class T>
struct PlainLanes {
  using Operand = T;
  using D = hn::CappedTag<T, kTileColumns>;
  using V = hn::Vec<D>;
  D d;
  V zero() const { return hn::Zero(d); }
  V load(const T* w) const { return hn::LoadU(d, w); }
  V add(V a, V b) const { return hn::Add(a, b); }
  V term(T x, V w, V onto) const { return multiply_add(d, hn::Set(d, x), w, onto); }
  void store(V sum, T* out) const { hn::StoreU(sum, d, out); }
};

/// FP16 accumulators, held in doubles: sum_to_half of order_sums.h by lane.
struct HalfLanes {
  using Operand = float;
  using D = hn::CappedTag<double, kTileColumns>;
  using V = hn::Vec<D>;
  using Narrow = hn::Rebind<float, D>;
  D d;
  V zero() const { return hn::Zero(d); }
  V load(const float* w) const { return hn::PromoteTo(d, hn::LoadU(Narrow(), w)); }
  V add(V a, V b) const { return round_to_half(sum_to_odd(a, b)); }
  V term(float x, V w, V onto) const {  // 48 bits: the product is exact
    return add(hn::Mul(hn::Set(d, static_cast<double>(x)), w), onto);
  }
  void store(V sum, float* out) const {  // not DemoteTo, which makes an infinity the largest float
    HWY_ALIGN double lanes[kTileColumns];
    hn::Store(sum, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) out[i] = static_cast<float>(lanes[i]);
  }

 private:
  V sum_to_odd(V a, V b) const {
    const hn::RebindToUnsigned<D> du;
    const V sum = hn::Add(a, b);
    const V b_part = hn::Sub(sum, a);
    const V error = hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part));
    const auto bits = hn::BitCast(du, sum);
    const auto one = hn::Set(du, 1);
    // 1 where the sum is inexact (a NaN error of an infinite sum is not) and its last bit is 0, else 0.
    const auto inexact = hn::VecFromMask(du, hn::RebindMask(du, hn::Gt(hn::Abs(error), hn::Zero(d))));
    const auto change = hn::And(hn::AndNot(bits, one), inexact);
    // Away from zero where error and sum have one sign, else towards it.
    const auto signs_differ = hn::ShiftRight<63>(hn::Xor(hn::BitCast(du, error), bits));
    const auto inward = hn::And(change, signs_differ);
    return hn::BitCast(d, hn::Sub(hn::Add(bits, change), hn::Add(inward, inward)));
  }
  /// As round_to_half of numerics/half.h, step for step.
  V round_to_half(V x) const {
    const hn::RebindToUnsigned<D> du;
    constexpr std::uint64_t kTail = (std::uint64_t{1} << 42) - 1;
    const V size = hn::Abs(x);
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<42>(bits), hn::Set(du, 1));
    const auto rounded = hn::AndNot(hn::Set(du, kTail), hn::Add(bits, hn::Add(hn::Set(du, kTail >> 1), odd)));
    const V magic = hn::Set(d, 0x1p28);
    const V subnormal = hn::CopySignToAbs(hn::Sub(hn::Add(size, magic), magic), x);
    const V infinite = hn::CopySignToAbs(hn::Inf(d), x);
    V out = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x1p-14)), subnormal, hn::BitCast(d, rounded));
    out = hn::IfThenElse(hn::Ge(size, hn::Set(d, 65520.0)), infinite, out);
    return hn::IfThenElse(hn::IsNaN(x), x, out);
  }
};

/// The columns of one vector by kRows rows: independent chains of additions, so that the CPU need not wait for each. The
/// orders are those of OrderedDot in order_sums.h.
template <class Lanes, int kRows>
class OrderedLanes {
 public:
  using Operand = typename Lanes::Operand;
  struct Sums {
    typename Lanes::V of[kRows];
  };
  OrderedLanes(const Operand* x, std::size_t row_step, const Operand* columns)
      : x_(x), row_step_(row_step), columns_(columns) {}

  Sums in(const ReductionSpec& spec, std::size_t n) const {
    const auto number = static_cast<std::size_t>(spec.n);
    switch (spec.order) {
      case SumOrder::sequential:
        return sequential(0, n);
      case SumOrder::pairwise:
        return pairwise(0, n);
      case SumOrder::blocked:
        return in_parts(n, number);
      case SumOrder::split_k:
        return in_parts(n, (n + number - 1) / number);
      case SumOrder::kahan:
        return kahan(n);
    }
    return zero();
  }

 private:
  Sums zero() const {
    Sums out;
    for (auto& v : out.of) v = lanes_.zero();
    return out;
  }
  Sums negative(Sums a) const {
    for (auto& v : a.of) v = hn::Neg(v);
    return a;
  }
  Sums add(Sums a, const Sums& b) const {
    for (int r = 0; r < kRows; ++r) a.of[r] = lanes_.add(a.of[r], b.of[r]);
    return a;
  }
  HWY_INLINE Sums term(std::size_t i, Sums onto) const {
    const auto w = lanes_.load(columns_ + i * kTileColumns);
    for (int r = 0; r < kRows; ++r)
      onto.of[r] = lanes_.term(x_[static_cast<std::size_t>(r) * row_step_ + i], w, onto.of[r]);
    return onto;
  }
  Sums sequential(std::size_t from, std::size_t n) const {
    Sums sum = zero();
    for (std::size_t i = from; i < from + n; ++i) sum = term(i, sum);
    return sum;
  }
  Sums pairwise(std::size_t from, std::size_t n) const {
    if (n <= 1) return sequential(from, n);
    if (n == 2) return add(term(from, zero()), term(from + 1, zero()));
    return add(pairwise(from, n / 2), pairwise(from + n / 2, n - n / 2));
  }
  Sums in_parts(std::size_t n, std::size_t size) const {
    Sums sum = zero();
    for (std::size_t from = 0; from < n; from += size) sum = add(sum, sequential(from, std::min(size, n - from)));
    return sum;
  }
  Sums kahan(std::size_t n) const {
    Sums sum = zero(), compensation = zero();
    for (std::size_t i = 0; i < n; ++i) {
      const Sums t = term(i, negative(compensation));
      const Sums total = add(sum, t);
      compensation = add(add(total, negative(sum)), negative(t));
      sum = total;
    }
    return sum;
  }

  Lanes lanes_;
  const Operand* x_;
  std::size_t row_step_;
  const Operand* columns_;
};

template <class Lanes, int kRows, class T = typename Lanes::Operand>
void tile_of_rows(const TileCall<T>& call, std::size_t first_row, const ReductionSpec& spec) {
  const Lanes lanes;
  const std::size_t width = hn::Lanes(lanes.d);  // a power of two: it divides kTileColumns
  for (std::size_t c = 0; c < kTileColumns; c += width) {
    const OrderedLanes<Lanes, kRows> dots(call.x + first_row * call.row_step, call.row_step, call.tile + c);
    const auto sums = dots.in(spec, call.n_terms);
    for (std::size_t r = 0; r < kRows; ++r) lanes.store(sums.of[r], call.out + (first_row + r) * kTileColumns + c);
  }
}

template <class Lanes, class T = typename Lanes::Operand>
void tile(const TileCall<T>& call, const ReductionSpec& spec) {
  std::size_t row = 0;
  for (; row + 4 <= call.n_rows; row += 4) tile_of_rows<Lanes, 4>(call, row, spec);
  for (; row < call.n_rows; ++row) tile_of_rows<Lanes, 1>(call, row, spec);
}

void float_tile(const TileCall<float>& call, const ReductionSpec& spec) { tile<PlainLanes<float>>(call, spec); }
void half_tile(const TileCall<float>& call, const ReductionSpec& spec) { tile<HalfLanes>(call, spec); }
void double_tile(const TileCall<double>& call, const ReductionSpec& spec) { tile<PlainLanes<double>>(call, spec); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvdiv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvdiv {

HWY_EXPORT(float_tile);
HWY_EXPORT(half_tile);
HWY_EXPORT(double_tile);

void ordered_tile(const TileCall<float>& call, const ReductionSpec& spec) {
  if (spec.accumulator == Accumulator::float16)
    HWY_DYNAMIC_DISPATCH(half_tile)(call, spec);
  else
    HWY_DYNAMIC_DISPATCH(float_tile)(call, spec);
}

void ordered_tile(const TileCall<double>& call, const ReductionSpec& spec) {
  HWY_DYNAMIC_DISPATCH(double_tile)(call, spec);
}

std::int64_t vector_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

}  // namespace kvdiv
#endif
