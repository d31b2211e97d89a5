#pragma once
// Starts kernels on a stream. Included by the files that instantiate them.
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <utility>

#include "device_code.h"
#include "kernels.h"
#include "launch.h"

namespace kvdiv::cuda {

inline void check(cudaError_t status, const char* what) {
  require(status == cudaSuccess, what, cudaGetErrorString(status));
}

/// More than 48 KB of dynamic shared memory have to be asked for: once for each kernel and device, or when more is
/// needed.
inline void allow_shared_memory(const char* name, const void* kernel, std::size_t bytes) {
  constexpr std::size_t kAllowed = 48 * 1024;
  if (bytes <= kAllowed) return;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, std::size_t> asked_for;
  int device = 0;
  check(cudaGetDevice(&device), name);
  const std::lock_guard lock(mutex);
  std::size_t& allowed = asked_for[{kernel, device}];
  if (bytes <= allowed) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
  allowed = bytes;
}

/// What the launch_… templates call.
class Launcher {
 public:
  explicit Launcher(CUstream_st* stream) : stream_(stream) {}

  template <class... Parameters, class... Arguments>
  void operator()(const char* name, void (*kernel)(Parameters...), const Geometry& geometry,
                  Arguments... arguments) const {
    require(geometry.grid_x < (std::int64_t{1} << 31) && geometry.grid_y <= kLargestGridSide &&
                geometry.grid_z <= kLargestGridSide,
            name, "more blocks than a grid has");
    if (geometry.grid_x == 0 || geometry.grid_y == 0 || geometry.grid_z == 0) return;
    allow_shared_memory(name, reinterpret_cast<const void*>(kernel), geometry.shared_bytes);
    const dim3 grid(static_cast<unsigned>(geometry.grid_x), static_cast<unsigned>(geometry.grid_y),
                    static_cast<unsigned>(geometry.grid_z));
    kernel<<<grid, static_cast<unsigned>(geometry.threads), geometry.shared_bytes, stream_>>>(arguments...);
    check(cudaGetLastError(), name);
  }

 private:
  CUstream_st* stream_;
};

template <class T>
struct StoredAs {
  using type = T;
};

/// f(StoredAs<T>{}) for the storage type.
template <class F>
auto with_storage(Storage storage, F f) {
  switch (storage) {
    case Storage::float16:
      return f(StoredAs<device::Half>{});
    case Storage::bfloat16:
      return f(StoredAs<device::BFloat>{});
    case Storage::float32:
      return f(StoredAs<float>{});
    case Storage::float64:
      return f(StoredAs<double>{});
  }
  throw Error(ErrorKind::internal, "no such storage type");
}

}  // namespace kvdiv::cuda
