#pragma once
// Products with few rows of x, at the speed of reading the weights.
//
// A block owns 16 rows of w and all columns; its eight warps take the chunks of K in turns, each streaming its own part
// of w (and of x) through its own ring of stages, without waiting for other warps. After each round of eight chunks the
// sums are added in ascending order. With two blocks an SM some 100 KB are in flight, three times what HBM's latency
// asks for.
#include "device_code.h"
#include "kernels.h"
#include "launch.h"
#include "linear_parts.cuh"

namespace kvdiv::device {

struct RowsShape {
  static constexpr int kWarps = 8;
  static constexpr int kRowsOfW = 16;
  static constexpr int kStages = 4;
  static constexpr int kTileBytes = kRowsOfW * kRowBytes;
  /// Sixteen sums of a column, padded so that a warp's stores fall into different banks.
  static constexpr int kSumStride = 20;
};

/// The ring of one warp.
template <class T, int kColumnTiles>
class RowsPipe : RowsShape {
 public:
  KVDIV_DEVICE RowsPipe(const cuda::LinearCall& call, char* ring, std::int64_t first_n, std::int64_t first_m,
                        int n_columns, int warp, int lane)
      : ring_(ring), stage_bytes_(kTileBytes + n_columns * kRowBytes), n_columns_(n_columns), lane_(lane) {
    const std::int64_t row = lane >> 3, piece = lane & 7;
    w_stride_ = call.K;
    x_stride_ = call.x_stride;
    const std::int64_t at = static_cast<std::int64_t>(warp) * kChunk + piece * 8;
    w_ = static_cast<const T*>(call.w) + (first_n + row) * w_stride_ + at;
    x_ = static_cast<const T*>(call.x) + (first_m + row) * x_stride_ + at;
    n_rows_ = call.N - first_n < kRowsOfW ? static_cast<int>(call.N - first_n) : kRowsOfW;
    const int n_chunks = static_cast<int>((call.K + kChunk - 1) / kChunk);
    const int mine = warp < n_chunks ? (n_chunks - warp + kWarps - 1) / kWarps : 0;
    const bool has_last = mine > 0 && (n_chunks - 1) % kWarps == warp;
    n_steps_ = mine * kStagesOfChunk;
    if (has_last) n_steps_ -= static_cast<int>((n_chunks * static_cast<std::int64_t>(kChunk) - call.K) / kStageTerms);
    for (int i = 0; i < kStages - 1; ++i) prefetch();
  }

  /// The next stage is there for the whole warp; the one used before is being filled again.
  KVDIV_DEVICE const char* next() {
    copy_async_wait<kStages - 2>();
    warp_barrier();
    prefetch();
    const char* const stage = ring_ + used_ * stage_bytes_;
    used_ = used_ + 1 == kStages ? 0 : used_ + 1;
    return stage;
  }

 private:
  KVDIV_DEVICE void prefetch() {
    if (n_issued_ < n_steps_) {
      char* const stage = ring_ + filled_ * stage_bytes_;
      const int row = lane_ >> 3, piece = lane_ & 7;
      const std::int64_t at = static_cast<std::int64_t>(n_issued_ / kStagesOfChunk) * kWarps * kChunk +
                              n_issued_ % kStagesOfChunk * kStageTerms;
      KVDIV_UNROLL
      for (int j = 0; j < kRowsOfW / 4; ++j) {
        const bool there = row + 4 * j < n_rows_;
        copy_async(stage + swizzled(row + 4 * j, piece), w_ + (there ? at + 4 * j * w_stride_ : 0 - row * w_stride_),
                   there ? 16 : 0);
      }
      KVDIV_UNROLL
      for (int j = 0; j < 2 * kColumnTiles; ++j)
        if (row + 4 * j < n_columns_)
          copy_async(stage + kTileBytes + swizzled(row + 4 * j, piece), x_ + at + 4 * j * x_stride_, 16);
    }
    copy_async_commit();  // an empty group too: waits count groups
    ++n_issued_;
    filled_ = filled_ + 1 == kStages ? 0 : filled_ + 1;
  }

  const T *w_, *x_;
  std::int64_t w_stride_, x_stride_;
  char* ring_;
  int stage_bytes_, n_columns_, n_rows_, lane_, n_steps_;
  int n_issued_ = 0, filled_ = 0, used_ = 0;
};

/// The products of a stage, onto the sums of a warp.
template <class T, int kColumnTiles>
KVDIV_DEVICE void add_stage(float (&sum)[kColumnTiles][4], const char* stage, int n_columns, int lane) {
  KVDIV_UNROLL
  for (int half = 0; half < 2; ++half) {
    std::uint32_t a[2][4];
    load_row_operand(a[0], stage, 0, 4 * half, lane);
    load_row_operand(a[1], stage, 0, 4 * half + 2, lane);
    KVDIV_UNROLL
    for (int j = 0; j < kColumnTiles; ++j) {
      // Two steps of sixteen terms at once. Columns that are not there read another, for results that nobody reads.
      const int column = 8 * j + (lane & 7), piece = 4 * half + (lane >> 3);
      std::uint32_t b[4];
      load_matrices(b, stage + RowsShape::kTileBytes + swizzled(column < n_columns ? column : 0, piece));
      multiply_add_tile<T>(sum[j], a[0], b[0], b[1]);
      multiply_add_tile<T>(sum[j], a[1], b[2], b[3]);
    }
  }
}

template <class T, int kColumnTiles>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(256, 2) linear_rows(cuda::LinearCall call) {
  using Shape = RowsShape;
  constexpr int kColumns = 8 * kColumnTiles;
  constexpr int kSumsOfWarp = kColumns * Shape::kSumStride;
  const int lane = thread_x() & 31, warp = thread_x() >> 5;
  const std::int64_t first_n = static_cast<std::int64_t>(block_x()) * Shape::kRowsOfW;
  const std::int64_t first_m = static_cast<std::int64_t>(block_y()) * kColumns;
  const int n_columns = call.M - first_m < kColumns ? static_cast<int>(call.M - first_m) : kColumns;

  auto* const sums = reinterpret_cast<float*>(shared_memory());  // [2][warp][column][row]
  char* const rings = shared_memory() + 2 * Shape::kWarps * kSumsOfWarp * 4;
  const int ring_bytes = Shape::kStages * (Shape::kTileBytes + n_columns * kRowBytes);
  RowsPipe<T, kColumnTiles> pipe(call, rings + warp * ring_bytes, first_n, first_m, n_columns, warp, lane);

  const int n_chunks = static_cast<int>((call.K + kChunk - 1) / kChunk);
  const int row = thread_x() & 15, column = thread_x() >> 4;  // of the output that this thread adds up
  float total = 0.0f;
  for (int first = 0, round = 0; first < n_chunks; first += Shape::kWarps, ++round) {
    float* const sums_of_round = sums + (round & 1) * Shape::kWarps * kSumsOfWarp;
    const int chunk = first + warp;
    if (chunk < n_chunks) {
      float sum[kColumnTiles][4] = {};
      const std::int64_t left = (call.K - static_cast<std::int64_t>(chunk) * kChunk) / kStageTerms;
      const int n_stages = left < kStagesOfChunk ? static_cast<int>(left) : kStagesOfChunk;
      for (int i = 0; i < n_stages; ++i) add_stage<T, kColumnTiles>(sum, pipe.next(), n_columns, lane);
      KVDIV_UNROLL
      for (int j = 0; j < kColumnTiles; ++j) {
        KVDIV_UNROLL
        for (int i = 0; i < 4; ++i)
          sums_of_round[warp * kSumsOfWarp + (8 * j + 2 * (lane & 3) + (i & 1)) * Shape::kSumStride + (lane >> 2) +
                        8 * (i >> 1)] = sum[j][i];
      }
    }
    block_barrier();
    // The other half of `sums` is written next, so one barrier a round is enough.
    const int n = n_chunks - first < Shape::kWarps ? n_chunks - first : Shape::kWarps;
    if (column < kColumns)
      for (int i = 0; i < n; ++i) total = add(total, sums_of_round[i * kSumsOfWarp + column * Shape::kSumStride + row]);
  }
  if (column < n_columns && first_n + row < call.N)
    static_cast<T*>(call.y)[(first_m + column) * call.N + first_n + row] = narrow<T>(total);
}

template <int kColumnTiles>
cuda::Geometry rows_geometry(const cuda::LinearCall& call) {
  const std::int64_t columns = call.M < 8 * kColumnTiles ? call.M : 8 * kColumnTiles;
  const std::int64_t ring = RowsShape::kStages * (RowsShape::kTileBytes + columns * kRowBytes);
  const std::int64_t sums = 2 * RowsShape::kWarps * 8 * kColumnTiles * RowsShape::kSumStride * 4;
  return {cuda::n_tiles(call.N, RowsShape::kRowsOfW), cuda::n_tiles(call.M, 8 * kColumnTiles), 1,
          RowsShape::kWarps * kWarp, static_cast<std::size_t>(sums + RowsShape::kWarps * ring)};
}

}  // namespace kvdiv::device
