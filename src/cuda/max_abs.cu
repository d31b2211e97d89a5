#include "max_abs.h"

#include <cfloat>

#include "device_code.h"
#include "launcher.cuh"

namespace kvdiv::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks =
    264;  // two for each processor of a Hopper GPU: enough to read as fast as memory goes

/// |x| as FP32; a finite number stays one.
template <class T>
__device__ float magnitude(T x) {
  if constexpr (sizeof(T) == 8) {
    const double a = fabs(static_cast<double>(x));
    return a > FLT_MAX && !isinf(a) ? FLT_MAX : static_cast<float>(a);
  } else {
    return fabsf(device::widen(x));
  }
}

/// FP32 numbers that are not negative are ordered as their bits are; NaN comes above infinity.
__device__ void raise(float* slot, unsigned bits) { atomicMax(reinterpret_cast<unsigned*>(slot), bits); }

template <class T>
__global__ void max_abs_kernel(const T* x, std::int64_t n, float* finite, float* all) {
  constexpr unsigned kInfinity = 0x7f800000U;
  unsigned largest_finite = 0, largest = 0;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const unsigned bits = __float_as_uint(magnitude(x[i])) & 0x7fffffffU;
    largest = max(largest, bits);
    if (bits < kInfinity) largest_finite = max(largest_finite, bits);
  }
  largest = __reduce_max_sync(0xffffffffU, largest);
  largest_finite = __reduce_max_sync(0xffffffffU, largest_finite);
  if (threadIdx.x % 32 != 0) return;
  raise(all, largest);
  raise(finite, largest_finite);
}

}  // namespace

void note_max_abs(Storage storage, const void* x, std::int64_t n, float* finite, float* all, CUstream_st* stream) {
  with_storage(storage, [&](auto stored) {
    using T = typename decltype(stored)::type;
    Geometry geometry;
    geometry.grid_x = std::min(kMaxBlocks, n_tiles(n, kThreads));
    geometry.threads = kThreads;
    Launcher{stream}("max_abs", &max_abs_kernel<T>, geometry, static_cast<const T*>(x), n, finite, all);
  });
}

}  // namespace kvdiv::cuda
