// The products of kernels.h, instantiated.
#include "launcher.cuh"
#include "linear.cuh"

namespace kvdiv::cuda {

int n_processors() {
  static std::mutex mutex;
  static std::map<int, int> known;
  int device = 0;
  check(cudaGetDevice(&device), "n_processors");
  const std::lock_guard lock(mutex);
  int& n = known[device];
  if (n == 0) check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "n_processors");
  return n;
}

void linear(Storage storage, const LinearCall& call, CUstream_st* stream) {
  if (call.M == 0 || call.N == 0) return;
  with_storage(storage, [&]<class T>(StoredAs<T>) {
    if constexpr (sizeof(T) == 2)
      device::launch_linear<T>(device::choose_linear(call.M, call.N, n_processors()), call, Launcher(stream));
    else
      device::launch_wide_linear<T>(call, Launcher(stream));
  });
}

}  // namespace kvdiv::cuda
