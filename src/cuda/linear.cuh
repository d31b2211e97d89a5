#pragma once
// Which kernel computes a product: a matter of speed alone. `launch(name, kernel, geometry, arguments…)` starts it: on
// a GPU, or in the tests' emulator.
#include <algorithm>
#include <iterator>
#include <utility>

#include "linear_rows.cuh"
#include "linear_tiled.cuh"
#include "linear_wide.cuh"

namespace kvdiv::device {

// Tiles of w × x, warps along each, stages. A warp's part is 64 × 48 outputs in the largest (all registers of an SM: a
// total and an accumulator for each), 64 × 32 in the next: the larger it is, the less of shared memory is read for each
// product, which is what holds a tensor core back.
using HugeTiles = TiledShape<128, 192, 2, 4, 4>;
using LargeTiles = TiledShape<128, 128, 2, 4, 4>;
using MediumTiles = TiledShape<128, 64, 4, 2, 4>;
using SmallTiles = TiledShape<64, 64, 2, 2, 4>;

enum class LinearKind { rows8, rows16, small_tiles, medium_tiles, large_tiles, huge_tiles };

/// Rows up to 16 are read as the weights are; above, the tiles that take the least time: waves of blocks over the
/// processors, times the work of a block, a little more of it for tiles that load more for each product.
inline LinearKind choose_linear(std::int64_t M, std::int64_t N, int n_processors) {
  if (M <= 8) return LinearKind::rows8;
  if (M <= 16) return LinearKind::rows16;
  const auto time = [&](std::int64_t tile_n, std::int64_t tile_m, double cost) {
    const std::int64_t blocks = cuda::n_tiles(M, tile_m) * cuda::n_tiles(N, tile_n);
    return static_cast<double>(cuda::n_tiles(blocks, n_processors) * tile_n * tile_m) * cost;
  };
  const std::pair<double, LinearKind> times[] = {{time(128, 192, 0.85), LinearKind::huge_tiles},
                                                 {time(128, 128, 1.0), LinearKind::large_tiles},
                                                 {time(128, 64, 1.2), LinearKind::medium_tiles},
                                                 {time(64, 64, 1.4), LinearKind::small_tiles}};
  return std::min_element(std::begin(times), std::end(times))->second;
}

template <class T>
void check_linear(const cuda::LinearCall& call) {
  cuda::require(call.K > 0 && call.K % cuda::kTermsMultiple == 0, "linear", "K is not a multiple of 64");
  cuda::require(cuda::is_aligned(call.x) && cuda::is_aligned(call.w), "linear", "operands are not aligned");
  cuda::require(cuda::is_aligned_stride<T>(call.x_stride), "linear", "rows of x are not aligned");
}

template <class T, class Shape, class Launch>
void launch_tiled(const cuda::LinearCall& call, Launch&& launch) {
  launch("linear_tiled", &linear_tiled<T, Shape>, tiled_geometry<Shape>(call), call,
         static_cast<int>(cuda::n_tiles(call.M, Shape::kTileM)));
}

template <class T, class Launch>
void launch_linear(LinearKind kind, const cuda::LinearCall& call, Launch&& launch) {
  check_linear<T>(call);
  switch (kind) {
    case LinearKind::rows8:
      return launch("linear_rows", &linear_rows<T, 1>, rows_geometry<1>(call), call);
    case LinearKind::rows16:
      return launch("linear_rows", &linear_rows<T, 2>, rows_geometry<2>(call), call);
    case LinearKind::small_tiles:
      return launch_tiled<T, SmallTiles>(call, launch);
    case LinearKind::medium_tiles:
      return launch_tiled<T, MediumTiles>(call, launch);
    case LinearKind::large_tiles:
      return launch_tiled<T, LargeTiles>(call, launch);
    case LinearKind::huge_tiles:
      return launch_tiled<T, HugeTiles>(call, launch);
  }
}

/// FP32 and FP64.
template <class T, class Launch>
void launch_wide_linear(const cuda::LinearCall& call, Launch&& launch) {
  check_linear<T>(call);
  if (call.M == 1)
    launch("linear_wide", &linear_wide<T, 1>, wide_geometry<T, 1>(call), call);
  else
    launch("linear_wide", &linear_wide<T, 8>, wide_geometry<T, 8>(call), call);
}

}  // namespace kvdiv::device
