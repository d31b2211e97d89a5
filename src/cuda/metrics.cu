#include "metrics.h"

#include "launcher.cuh"
#include "metrics.cuh"

namespace kvdiv::cuda {

std::size_t metrics_workspace_bytes(std::int64_t V) { return device::metric_workspace_size(V); }

void launch_metrics(Storage storage, const void* on, const void* off, std::int64_t V, void* workspace, StepMetrics* out,
                    CUstream_st* stream) {
  with_storage(storage,
               [&]<class T>(StoredAs<T>) { device::launch_metrics<T>(on, off, V, workspace, out, Launcher(stream)); });
}

}  // namespace kvdiv::cuda
