#pragma once
// Products with many rows of x: tiles of w × x in shared memory, a ring of stages filled by asynchronous copies, each
// warp a part of the tile. The order of an output's sum is that of linear_rows.cuh.
#include "device_code.h"
#include "kernels.h"
#include "launch.h"
#include "linear_parts.cuh"

namespace kvdiv::device {

/// kTileN rows of w by kTileM rows of x; kWarpsN × kWarpsM warps.
template <int kN, int kM, int kAlongN, int kAlongM, int kRing>
struct TiledShape {
  static constexpr int kTileN = kN, kTileM = kM, kWarpsN = kAlongN, kWarpsM = kAlongM, kStages = kRing;
  static constexpr int kThreads = kWarpsN * kWarpsM * kWarp;
  static constexpr int kRowTiles = kTileN / kWarpsN / 16, kColumnTiles = kTileM / kWarpsM / 8;  ///< of a warp
  static constexpr int kStageBytes = (kTileN + kTileM) * kRowBytes;
  static constexpr int kOutStride = kTileN + 8;  ///< elements; shifts the rows of the result by four banks
  static_assert(kRowTiles >= 1 && kColumnTiles >= 2 && kColumnTiles % 2 == 0);
  static_assert((kTileN * 8) % kThreads == 0 && (kTileM * 8) % kThreads == 0);
  static_assert(kTileM * kOutStride * 2 <= kStages * kStageBytes);
  static constexpr std::size_t shared_bytes() { return static_cast<std::size_t>(kStages) * kStageBytes; }
};

/// Copies one stage of a tile: `kRows` rows from row `first` of `n_rows`, 64 terms of each from term k on.
template <int kRows, int kThreads, class T>
KVDIV_DEVICE void copy_tile(char* to, const T* from, std::int64_t stride, std::int64_t first, std::int64_t n_rows,
                            std::int64_t k) {
  const int piece = thread_x() & 7;
  KVDIV_UNROLL
  for (int i = 0; i < kRows * 8 / kThreads; ++i) {
    const int row = (thread_x() >> 3) + i * (kThreads / 8);
    const bool there = first + row < n_rows;
    copy_async(to + swizzled(row, piece), from + (there ? (first + row) * stride + k + piece * 8 : 0), there ? 16 : 0);
  }
}

/// A warp's part of the products of a stage.
template <class T, class Shape>
KVDIV_DEVICE void add_stage(float (&sum)[Shape::kRowTiles][Shape::kColumnTiles][4], const char* w, const char* x,
                            int first_n, int first_m, int lane) {
  KVDIV_UNROLL
  for (int step = 0; step < kStageTerms / 16; ++step) {
    std::uint32_t a[Shape::kRowTiles][4], b[Shape::kColumnTiles / 2][4];
    KVDIV_UNROLL
    for (int i = 0; i < Shape::kRowTiles; ++i) load_row_operand(a[i], w, first_n + 16 * i, 2 * step, lane);
    KVDIV_UNROLL
    for (int j = 0; j < Shape::kColumnTiles / 2; ++j)  // two tiles of eight columns at once
      load_matrices(b[j],
                    x + swizzled(first_m + 16 * j + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
    KVDIV_UNROLL
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      KVDIV_UNROLL
      for (int j = 0; j < Shape::kColumnTiles; ++j)
        multiply_add_tile<T>(sum[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
    }
  }
}

/// The end of a chunk.
template <class Shape>
KVDIV_DEVICE void add_chunk(float (&total)[Shape::kRowTiles][Shape::kColumnTiles][4],
                            float (&sum)[Shape::kRowTiles][Shape::kColumnTiles][4]) {
  KVDIV_UNROLL
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    KVDIV_UNROLL
    for (int j = 0; j < 4 * Shape::kColumnTiles; ++j) {
      total[i][j >> 2][j & 3] = add(total[i][j >> 2][j & 3], sum[i][j >> 2][j & 3]);
      sum[i][j >> 2][j & 3] = 0.0f;
    }
  }
}

/// A warp's sums, rounded, to where the whole tile lies by rows of y.
template <class T, class Shape>
KVDIV_DEVICE void lay_out(T* tile, const float (&total)[Shape::kRowTiles][Shape::kColumnTiles][4], int first_n,
                          int first_m, int lane) {
  KVDIV_UNROLL
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    KVDIV_UNROLL
    for (int j = 0; j < 4 * Shape::kColumnTiles; ++j) {
      const int m = first_m + 8 * (j >> 2) + 2 * (lane & 3) + (j & 1), n = first_n + 16 * i + (lane >> 2) + 4 * (j & 2);
      tile[m * Shape::kOutStride + n] = narrow<T>(total[i][j >> 2][j & 3]);
    }
  }
}

/// The tile to y: 16 bytes at once where a row of y allows it.
template <class T, class Shape>
KVDIV_DEVICE void store_tile(const cuda::LinearCall& call, const T* tile, std::int64_t first_n, std::int64_t first_m) {
  constexpr int kPieces = Shape::kTileN / 8;
  const bool whole = call.N % 8 == 0 && reinterpret_cast<std::uintptr_t>(call.y) % 16 == 0;
  for (int i = thread_x(); i < Shape::kTileM * kPieces; i += Shape::kThreads) {
    const int m = i / kPieces, n = i % kPieces * 8;
    if (first_m + m >= call.M || first_n + n >= call.N) continue;
    const T* const from = tile + m * Shape::kOutStride + n;
    T* const to = static_cast<T*>(call.y) + (first_m + m) * call.N + first_n + n;
    if (whole)
      *reinterpret_cast<Bytes16*>(to) = *reinterpret_cast<const Bytes16*>(from);
    else
      for (int e = 0; e < 8 && first_n + n + e < call.N; ++e) to[e] = from[e];
  }
}

template <class T, class Shape>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(Shape::kThreads, 1) linear_tiled(cuda::LinearCall call, int n_tiles_m) {
  const int lane = thread_x() & 31, warp = thread_x() >> 5;
  // Blocks that share rows of w follow each other, so that w is read from memory once.
  const std::int64_t first_m = static_cast<std::int64_t>(block_x() % n_tiles_m) * Shape::kTileM;
  const std::int64_t first_n = static_cast<std::int64_t>(block_x() / n_tiles_m) * Shape::kTileN;
  const int n_of_warp = warp / Shape::kWarpsM * 16 * Shape::kRowTiles;
  const int m_of_warp = warp % Shape::kWarpsM * 8 * Shape::kColumnTiles;
  const auto* const w = static_cast<const T*>(call.w);
  const auto* const x = static_cast<const T*>(call.x);
  const int n_steps = static_cast<int>(call.K / kStageTerms);

  const auto prefetch = [&](int step) {
    if (step < n_steps) {
      char* const stage = shared_memory() + step % Shape::kStages * Shape::kStageBytes;
      const std::int64_t k = static_cast<std::int64_t>(step) * kStageTerms;
      copy_tile<Shape::kTileN, Shape::kThreads>(stage, w, call.K, first_n, call.N, k);
      copy_tile<Shape::kTileM, Shape::kThreads>(stage + Shape::kTileN * kRowBytes, x, call.x_stride, first_m, call.M,
                                                k);
    }
    copy_async_commit();  // an empty group too: waits count groups
  };
  for (int i = 0; i < Shape::kStages - 1; ++i) prefetch(i);

  float total[Shape::kRowTiles][Shape::kColumnTiles][4] = {}, sum[Shape::kRowTiles][Shape::kColumnTiles][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    copy_async_wait<Shape::kStages - 2>();
    block_barrier();
    prefetch(step + Shape::kStages - 1);
    const char* const stage = shared_memory() + step % Shape::kStages * Shape::kStageBytes;
    add_stage<T, Shape>(sum, stage, stage + Shape::kTileN * kRowBytes, n_of_warp, m_of_warp, lane);
    if (step % kStagesOfChunk != kStagesOfChunk - 1 && step != n_steps - 1) continue;
    add_chunk<Shape>(total, sum);
  }
  copy_async_wait<0>();
  block_barrier();  // all have read the last stage: the tile takes its place
  auto* const tile = reinterpret_cast<T*>(shared_memory());
  lay_out<T, Shape>(tile, total, n_of_warp, m_of_warp, lane);
  block_barrier();
  store_tile<T, Shape>(call, tile, first_n, first_m);
}

template <class Shape>
cuda::Geometry tiled_geometry(const cuda::LinearCall& call) {
  return {cuda::n_tiles(call.M, Shape::kTileM) * cuda::n_tiles(call.N, Shape::kTileN), 1, 1, Shape::kThreads,
          Shape::shared_bytes()};
}

}  // namespace kvdiv::device
