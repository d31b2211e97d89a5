// The stages of attention of kernels.h, instantiated.
#include "attention.cuh"
#include "launcher.cuh"

namespace kvdiv::cuda {

void attention_scores(Storage storage, const ScoreCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_scores<T>(call, Launcher(stream)); });
}

void attention_softmax(Storage storage, const SoftmaxCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_softmax<T>(call, Launcher(stream)); });
}

void attention_mix(Storage storage, const MixCall& call, CUstream_st* stream) {
  with_storage(storage, [&]<class T>(StoredAs<T>) { device::launch_mix<T>(call, Launcher(stream)); });
}

std::size_t mix_workspace_bytes(Storage storage, const AttentionShape& shape) {
  return with_storage(storage, [&]<class T>(StoredAs<T>) { return device::workspace_bytes<T>(shape); });
}

}  // namespace kvdiv::cuda
