// The row operations of kernels.h, instantiated.
#include "launcher.cuh"
#include "rows.cuh"

namespace kvdiv::cuda {

void rms_norm(Storage storage, const NormCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_rms_norm<T>(call, Launcher(stream)); });
}

void log_softmax(Storage storage, const LogSoftmaxCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_log_softmax<T>(call, Launcher(stream)); });
}

void gated(Storage storage, const GatedCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_gated<T>(call, Launcher(stream)); });
}

void soft_cap(Storage storage, const SoftCapCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_soft_cap<T>(call, Launcher(stream)); });
}

void rotate(Storage storage, const RotateCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_rotate<T>(call, Launcher(stream)); });
}

}  // namespace kvdiv::cuda
