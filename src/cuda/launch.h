#pragma once
// How kernels are launched: sizes of grids and blocks, as plain functions, and what calls must keep to. Nothing here
// decides bits.
#include <cstddef>
#include <cstdint>
#include <string>

#if defined(__CUDACC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1  // {fmt} 9 underrates CUDA's front end, and is then not valid C++20
#endif
#include "kvdiv/base/error.h"

namespace kvdiv::cuda {

struct Geometry {
  std::int64_t grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 0;
  std::size_t shared_bytes = 0;
};

/// Grids have at most this many blocks along y and z.
inline constexpr std::int64_t kLargestGridSide = 65535;

constexpr std::int64_t n_tiles(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }

/// A call that does not keep to what kernels.h asks for is a defect of the caller.
inline void require(bool holds, const char* kernel, const char* what) {
  // Put together by hand: CUDA's front end cannot check format strings.
  if (!holds) throw Error(ErrorKind::internal, std::string(kernel) + ": " + what);
}
inline bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
template <class T>
bool is_aligned_stride(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

}  // namespace kvdiv::cuda
