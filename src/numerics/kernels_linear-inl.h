// Products with packed weights. Included once for each target.
//
// An output element is one chain of fused multiply-adds over ascending k, whatever tile it lies in: tiles decide speed, not
// bits. A tile of R rows × 2 vectors keeps 2·R accumulators in registers (12 × 2 of AVX-512's 32, 6 × 2 of AVX2's 16).
#if defined(KVDIV_NUMERICS_KERNELS_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVDIV_NUMERICS_KERNELS_LINEAR_INL_H_
#undef KVDIV_NUMERICS_KERNELS_LINEAR_INL_H_
#else
#define KVDIV_NUMERICS_KERNELS_LINEAR_INL_H_
#endif

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>

#include <algorithm>

#include "kernels_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvdiv::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 12;
#endif

/// Panels of at least this number widen a stretch of a weight block once instead of once a panel.
inline constexpr std::int64_t kPanelsToWiden = 3;
/// Terms of a stretch: 32 columns of it, widened, stay in the first-level cache while all panels pass by. The accumulators
/// wait in memory meanwhile, which costs no bits.
inline constexpr std::int64_t kStretch = 128;
/// Bytes of panels that stay in the second-level cache while all weight blocks pass by.
inline constexpr std::int64_t kPanelBytesAtOnce = 1 << 20;

/// Terms of a row that lie together in a panel.
inline constexpr std::int64_t kTerms = 16;

inline std::int64_t PanelBytes(Storage storage, std::int64_t M, std::int64_t K) {
  const std::int64_t element = storage == Storage::float64 ? 8 : 4;
  return (M == 1 ? 1 : (M + kTileRows - 1) / kTileRows * kTileRows) * ((K + kTerms - 1) / kTerms * kTerms) * element;
}

/// [M,K] → panels [⌈M/R⌉][⌈K/16⌉][R][16], widened; what is missing is zero. A single row stays a row. A tile then reads its R
/// rows at constant distances from one pointer.
template <class T>
void PackRows(const T* x, std::int64_t row_stride, std::int64_t M, std::int64_t K, std::int64_t first,
              std::int64_t last, Wide<T>* panels) {
  using W = Wide<T>;
  const std::int64_t rows = M == 1 ? 1 : kTileRows, n_blocks = (K + kTerms - 1) / kTerms;
  for (std::int64_t p = first; p < last; ++p)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t m = p * rows + r;
      W* to = panels + (p * n_blocks * rows + r) * kTerms;
      for (std::int64_t b = 0; b < n_blocks; ++b, to += rows * kTerms) {
        const std::int64_t n = m < M ? std::min(kTerms, K - b * kTerms) : 0;
        const T* const from = x + m * row_stride + b * kTerms;
        ForVectors<W>(n, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(load(from), to); });
        std::fill(to + n, to + kTerms, W{0});
      }
    }
}

/// Adds K terms to two vectors of columns of R rows: to zeros, or to what `out` holds.
template <int R, class D, class T>
HWY_INLINE void Tile(D d, const hn::TFromD<D>* HWY_RESTRICT x, const T* HWY_RESTRICT w, std::int64_t K, bool from_zero,
                     hn::TFromD<D>* HWY_RESTRICT out) {
  const std::size_t N = hn::Lanes(d);
  hn::Vec<D> low[R], high[R];
  HWY_UNROLL(32)
  for (int r = 0; r < R; ++r) {
    low[r] = from_zero ? hn::Zero(d) : hn::LoadU(d, out + r * kPackedColumns);
    high[r] = from_zero ? hn::Zero(d) : hn::LoadU(d, out + r * kPackedColumns + N);
  }
  const auto add_term = [&](std::int64_t i) HWY_ATTR {
    const auto w_low = WidenLoad(d, w + i * kPackedColumns), w_high = WidenLoad(d, w + i * kPackedColumns + N);
    HWY_UNROLL(32)
    for (int r = 0; r < R; ++r) {
      const auto x_r = hn::Set(d, x[r * kTerms + i]);
      low[r] = hn::MulAdd(x_r, w_low, low[r]);
      high[r] = hn::MulAdd(x_r, w_high, high[r]);
    }
  };
  std::int64_t k = 0;
  for (; k + kTerms <= K; k += kTerms, x += kTileRows * kTerms, w += kTerms * kPackedColumns) {
    HWY_UNROLL(2)
    for (std::int64_t i = 0; i < kTerms; ++i) add_term(i);
  }
  for (std::int64_t i = 0; i < K - k; ++i) add_term(i);
  HWY_UNROLL(32)
  for (int r = 0; r < R; ++r) {
    hn::StoreU(low[r], d, out + r * kPackedColumns);
    hn::StoreU(high[r], d, out + r * kPackedColumns + N);
  }
}

/// All 32 columns of a block for a panel: out [R][32], widened.
template <int R, class W, class T>
HWY_INLINE void PanelTimesBlock(const W* x, const T* w, std::int64_t K, bool from_zero, W* out) {
  const WideTag<W> d;
  const auto step = static_cast<std::int64_t>(2 * hn::Lanes(d));
  for (std::int64_t c = 0; c < kPackedColumns; c += step) Tile<R>(d, x, w + c, K, from_zero, out + c);
}

/// A panel of `n_rows` real rows: small ones take smaller tiles.
template <class W, class T>
void PanelOf(std::int64_t n_rows, const W* x, const T* w, std::int64_t K, bool from_zero, W* out) {
  if (n_rows > (kTileRows > 8 ? 8 : kTileRows / 2)) return PanelTimesBlock<kTileRows>(x, w, K, from_zero, out);
  if constexpr (kTileRows > 8)
    if (n_rows > 4) return PanelTimesBlock<8>(x, w, K, from_zero, out);
  if (n_rows > 2) return PanelTimesBlock<(kTileRows > 8 ? 4 : kTileRows / 2)>(x, w, K, from_zero, out);
  PanelTimesBlock<2>(x, w, K, from_zero, out);
}

/// `n_columns` rounded results of a row.
template <class T>
HWY_INLINE void StoreRow(const Wide<T>* from, std::int64_t n_columns, T* to) {
  ForVectors<Wide<T>>(n_columns, [&](std::int64_t, auto load, auto store) HWY_ATTR { store(load(from), to); });
}

/// One row against `kBlocks` column blocks at once: enough independent chains to wait for memory only.
template <int kBlocks, class D, class T>
HWY_INLINE void RowTimesBlocks(D d, const hn::TFromD<D>* HWY_RESTRICT x, const T* HWY_RESTRICT w, std::int64_t K,
                               hn::TFromD<D>* HWY_RESTRICT out) {
  using W = hn::TFromD<D>;
  constexpr int kVectors = static_cast<int>(kPackedColumns / HWY_MAX(1, HWY_MIN(16, HWY_LANES(W))));
  const std::size_t N = hn::Lanes(d);
  hn::Vec<D> sum[kBlocks * kVectors];
  HWY_UNROLL(32)
  for (int i = 0; i < kBlocks * kVectors; ++i) sum[i] = hn::Zero(d);
  const std::int64_t block = K * kPackedColumns;
  for (std::int64_t k = 0; k < K; ++k) {
    const auto x_k = hn::Set(d, x[k]);
    HWY_UNROLL(32)
    for (int b = 0; b < kBlocks; ++b) {
      const T* const from = w + b * block + k * kPackedColumns;
      hwy::Prefetch(from + 1024 / sizeof(T));
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors; ++v)
        sum[b * kVectors + v] =
            hn::MulAdd(x_k, WidenLoad(d, from + static_cast<std::size_t>(v) * N), sum[b * kVectors + v]);
    }
  }
  HWY_UNROLL(32)
  for (int i = 0; i < kBlocks * kVectors; ++i) hn::StoreU(sum[i], d, out + static_cast<std::size_t>(i) * N);
}

template <class T>
void RowLinear(const LinearCall& call, std::int64_t first, std::int64_t last) {
  using W = Wide<T>;
  const WideTag<W> d;
  constexpr int kBlocks = HWY_TARGET == HWY_AVX2 ? 2 : 4;
  const auto* const x = static_cast<const W*>(call.panels);
  const auto* const w = static_cast<const T*>(call.weight);
  auto* const y = static_cast<T*>(call.y);
  HWY_ALIGN W out[kBlocks * kPackedColumns];
  for (std::int64_t b = first; b < last;) {
    const bool many = b + kBlocks <= last;
    const std::int64_t n_blocks = many ? kBlocks : 1;
    const T* const from = w + b * call.K * kPackedColumns;
    if (many)
      RowTimesBlocks<kBlocks>(d, x, from, call.K, out);
    else
      RowTimesBlocks<1>(d, x, from, call.K, out);
    StoreRow<T>(out, std::min(n_blocks * kPackedColumns, call.N - b * kPackedColumns), y + b * kPackedColumns);
    b += n_blocks;
  }
}

/// Rows [first_row, last_row) times weight blocks: what the loops below share.
template <class T>
struct RowGroup {
  using W = Wide<T>;
  const LinearCall& call;
  std::int64_t padded_K, first_row, last_row;
  W *wide, *sums;  ///< [kStretch][32]; [rows][32]

  /// One stretch of K of a block.
  template <class V>
  void Add(const V* w, std::int64_t k, std::int64_t n_terms) const {
    const auto* const x = static_cast<const W*>(call.panels);
    for (std::int64_t row = first_row; row < last_row; row += kTileRows)
      PanelOf(std::min<std::int64_t>(kTileRows, last_row - row), x + row * padded_K + k * kTileRows, w, n_terms, k == 0,
              sums + (row - first_row) * kPackedColumns);
  }

  void Block(std::int64_t b, bool widen) const {
    const T* const block = static_cast<const T*>(call.weight) + b * call.K * kPackedColumns;
    for (std::int64_t k = 0; k < call.K; k += kStretch) {
      const std::int64_t n_terms = std::min(kStretch, call.K - k);
      const T* const stretch = block + k * kPackedColumns;
      if (!widen) {
        Add(stretch, k, n_terms);
        continue;
      }
      ForVectors<W>(n_terms * kPackedColumns,
                    [&](std::int64_t, auto load, auto store) HWY_ATTR { store(load(stretch), wide); });
      Add(wide, k, n_terms);
    }
    const std::int64_t column = b * kPackedColumns, n_columns = std::min(kPackedColumns, call.N - column);
    for (std::int64_t m = first_row; m < last_row; ++m)
      StoreRow<T>(sums + (m - first_row) * kPackedColumns, n_columns,
                  static_cast<T*>(call.y) + m * call.N + column);
  }
};

template <class T>
void Linear(const LinearCall& call, std::int64_t first, std::int64_t last) {
  using W = Wide<T>;
  if (call.M == 1) return RowLinear<T>(call, first, last);
  const std::int64_t padded_K = (call.K + kTerms - 1) / kTerms * kTerms;
  const std::int64_t panel_bytes = kTileRows * padded_K * static_cast<std::int64_t>(sizeof(W));
  const std::int64_t rows = std::max<std::int64_t>(4, kPanelBytesAtOnce / panel_bytes) * kTileRows;
  // Aligned: a load that crosses a cache line counts twice.
  const auto wide = hwy::AllocateAligned<W>(kStretch * kPackedColumns);
  const auto sums = hwy::AllocateAligned<W>(static_cast<std::size_t>(rows * kPackedColumns));
  for (std::int64_t row = 0; row < call.M; row += rows) {
    const RowGroup<T> group{call, padded_K, row, std::min(row + rows, call.M), wide.get(), sums.get()};
    const std::int64_t n_panels = (group.last_row - row + kTileRows - 1) / kTileRows;
    const bool widen = !std::is_same_v<T, W> && n_panels >= kPanelsToWiden;
    for (std::int64_t b = first; b < last; ++b) group.Block(b, widen);
  }
}

/// Twelve (AVX2) or twenty-four independent chains: the most that multiply-adds can do without memory.
inline double RegisterFlops(std::int64_t n_rounds, float* sink) {
  const WideTag<float> d;
  constexpr int kChains = 2 * kTileRows;
  hn::Vec<WideTag<float>> sum[kChains];
  HWY_UNROLL(32)
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  const auto a = hn::Set(d, sink[0]), b = hn::Set(d, sink[1]);
  for (std::int64_t n = 0; n < n_rounds; ++n) {
    HWY_UNROLL(32)
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(sum[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) sink[2] += hn::GetLane(sum[i]);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(n_rounds);
}

inline double ReadBytes(const void* data, std::int64_t n_bytes) {
  const WideTag<float> d;
  const std::size_t N = hn::Lanes(d);
  const auto* from = static_cast<const float*>(data);
  const auto* const end = from + n_bytes / 4;
  hn::Vec<WideTag<float>> sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (; from < end; from += 4 * N) {
    hwy::Prefetch(from + 1024 / 4);
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < 4; ++i) sum[i] = hn::Add(sum[i], hn::LoadU(d, from + i * N));
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])))));
}

}  // namespace kvdiv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
