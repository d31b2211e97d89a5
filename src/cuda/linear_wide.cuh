#pragma once
// Products in FP32 and FP64, without tensor cores. A lane is a row of w: it carries the chains of its outputs. Warps
// take chunks of K in turns, as in linear_rows.cuh.
#include "device_code.h"
#include "kernels.h"
#include "launch.h"
#include "linear_parts.cuh"

namespace kvdiv::device {

struct WideShape {
  static constexpr int kWarps = 4;
  static constexpr int kRowsOfW = kWarp;
  static constexpr int kStages = 3;
  static constexpr int kRowStride = kRowBytes + 16;  ///< padded: sixteen bytes of eight rows fall into all banks
  static constexpr int kTileBytes = kRowsOfW * kRowStride;
};

/// Numbers in sixteen bytes.
template <class T>
inline constexpr int kInPiece = 16 / static_cast<int>(sizeof(T));

template <class T, int kColumns>
class WidePipe : WideShape {
 public:
  KVDIV_DEVICE WidePipe(const cuda::LinearCall& call, char* ring, std::int64_t first_n, std::int64_t first_m, int lane)
      : call_(call), ring_(ring), first_n_(first_n), first_m_(first_m), lane_(lane) {}

  /// Starts a chunk, terms [k, k_end); after a barrier of the block, so that all lanes have read the last one.
  KVDIV_DEVICE void start(std::int64_t k, std::int64_t k_end) {
    k_ = k, k_end_ = k_end;
    filled_ = used_ = 0;
    for (int i = 0; i < kStages - 1; ++i) prefetch();
  }
  KVDIV_DEVICE const char* next() {
    copy_async_wait<kStages - 2>();
    warp_barrier();
    prefetch();
    const char* const stage = ring_ + used_ * kStageBytes;
    used_ = used_ + 1 == kStages ? 0 : used_ + 1;
    return stage;
  }
  static constexpr int kStageBytes = kTileBytes + kColumns * kRowBytes;

 private:
  KVDIV_DEVICE void prefetch() {
    if (k_ < k_end_) {
      char* const stage = ring_ + filled_ * kStageBytes;
      const int piece = lane_ & 7;
      const std::int64_t at = k_ + piece * kInPiece<T>;
      const auto* const w = static_cast<const T*>(call_.w);
      const auto* const x = static_cast<const T*>(call_.x);
      KVDIV_UNROLL
      for (int row = lane_ >> 3; row < kRowsOfW; row += 4) {
        const bool there = first_n_ + row < call_.N;
        copy_async(stage + row * kRowStride + piece * 16, w + (there ? (first_n_ + row) * call_.K + at : 0),
                   there ? 16 : 0);
      }
      for (int column = lane_ >> 3; column < kColumns; column += 4) {
        const bool there = first_m_ + column < call_.M;
        copy_async(stage + kTileBytes + column * kRowBytes + piece * 16,
                   x + (there ? (first_m_ + column) * call_.x_stride + at : 0), there ? 16 : 0);
      }
    }
    copy_async_commit();
    k_ += 8 * kInPiece<T>;
    filled_ = filled_ + 1 == kStages ? 0 : filled_ + 1;
  }

  const cuda::LinearCall& call_;
  char* ring_;
  std::int64_t first_n_, first_m_, k_ = 0, k_end_ = 0;
  int lane_, filled_ = 0, used_ = 0;
};

template <class T>
struct alignas(16) Piece {
  T of[kInPiece<T>];
};

template <class T, int kColumns>
KVDIV_DEVICE void add_wide_stage(T (&sum)[kColumns], const char* stage, int lane) {
  KVDIV_UNROLL
  for (int p = 0; p < 8; ++p) {
    const auto w = *reinterpret_cast<const Piece<T>*>(stage + lane * WideShape::kRowStride + p * 16);
    KVDIV_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const auto x = *reinterpret_cast<const Piece<T>*>(stage + WideShape::kTileBytes + c * kRowBytes + p * 16);
      KVDIV_UNROLL
      for (int e = 0; e < kInPiece<T>; ++e) sum[c] = fused(w.of[e], x.of[e], sum[c]);
    }
  }
}

template <class T, int kColumns>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(128, 2) linear_wide(cuda::LinearCall call) {
  using Shape = WideShape;
  constexpr int kSumsOfWarp = kColumns * kWarp;
  const int lane = thread_x() & 31, warp = thread_x() >> 5;
  const std::int64_t first_n = static_cast<std::int64_t>(block_x()) * Shape::kRowsOfW;
  const std::int64_t first_m = static_cast<std::int64_t>(block_y()) * kColumns;
  auto* const sums = reinterpret_cast<T*>(shared_memory());  // [2][warp][column][row]
  using Pipe = WidePipe<T, kColumns>;
  char* const rings = shared_memory() + 2 * Shape::kWarps * kSumsOfWarp * static_cast<int>(sizeof(T));
  Pipe pipe(call, rings + warp * Shape::kStages * Pipe::kStageBytes, first_n, first_m, lane);

  const int n_chunks = static_cast<int>((call.K + kChunk - 1) / kChunk);
  constexpr int kMine = (kColumns + Shape::kWarps - 1) / Shape::kWarps;
  T total[kMine] = {};  // columns warp, warp + 4, … of row `lane`
  for (int first = 0, round = 0; first < n_chunks; first += Shape::kWarps, ++round) {
    T* const sums_of_round = sums + (round & 1) * Shape::kWarps * kSumsOfWarp;
    if (first + warp < n_chunks) {
      T sum[kColumns] = {};
      const std::int64_t k = static_cast<std::int64_t>(first + warp) * kChunk;
      const std::int64_t k_end = k + kChunk < call.K ? k + kChunk : call.K;
      pipe.start(k, k_end);
      for (std::int64_t at = k; at < k_end; at += 8 * kInPiece<T>) add_wide_stage<T, kColumns>(sum, pipe.next(), lane);
      KVDIV_UNROLL
      for (int c = 0; c < kColumns; ++c) sums_of_round[warp * kSumsOfWarp + c * kWarp + lane] = sum[c];
    }
    block_barrier();
    const int n = n_chunks - first < Shape::kWarps ? n_chunks - first : Shape::kWarps;
    KVDIV_UNROLL
    for (int j = 0; j < kMine; ++j) {
      const int c = warp + j * Shape::kWarps;
      if (c < kColumns)
        for (int i = 0; i < n; ++i) total[j] = add(total[j], sums_of_round[i * kSumsOfWarp + c * kWarp + lane]);
    }
  }
  KVDIV_UNROLL
  for (int j = 0; j < kMine; ++j) {
    const int c = warp + j * Shape::kWarps;
    if (c < kColumns && first_m + c < call.M && first_n + lane < call.N)
      static_cast<T*>(call.y)[(first_m + c) * call.N + first_n + lane] = total[j];
  }
}

template <class T, int kColumns>
cuda::Geometry wide_geometry(const cuda::LinearCall& call) {
  const int sums = 2 * WideShape::kWarps * kColumns * kWarp * static_cast<int>(sizeof(T));
  const int rings = WideShape::kWarps * WideShape::kStages * WidePipe<T, kColumns>::kStageBytes;
  return {cuda::n_tiles(call.N, WideShape::kRowsOfW), cuda::n_tiles(call.M, kColumns), 1, WideShape::kWarps * kWarp,
          static_cast<std::size_t>(sums + rings)};
}

}  // namespace kvdiv::device
