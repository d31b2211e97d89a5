#include "kvdiv/decode/step_graphs.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

const DeviceModule& gpu_of(const Decoder& decoder) {
  const DeviceModule* const gpu = module_of(decoder.device());
  if (gpu == nullptr) fail_usage("--cuda-graph: only a GPU's launches can be recorded; use it with --device cuda");
  return *gpu;
}

}  // namespace

StepGraphs::StepGraphs(const Decoder& decoder, std::int64_t capacity)
    : decoder_(decoder), gpu_(gpu_of(decoder)), cache_(decoder.make_cache(capacity)) {
  const c10::InferenceMode inference;
  ids_BT_ = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong).device(decoder.device()));
}

std::int64_t StepGraphs::n_recorded() const {
  return std::count_if(recordings_.begin(), recordings_.end(),
                       [](const auto& r) { return r.second.launches != nullptr; });
}

at::Tensor StepGraphs::step(TokenId token, Tap* tap) {
  const c10::InferenceMode inference;
  ids_BT_.fill_(token);
  const auto run = [&] { return decoder_.forward_ids(ids_BT_, &cache_, tap); };
  if (tap != nullptr && !tap->only_launches()) return run();
  const std::int64_t length = cache_.length();
  Recording& recording = recordings_[{length, tap}];
  if (!recording.was_seen) {
    recording.was_seen = true;  // the first time libraries load kernels and take workspace, which a recording must not
    return run();
  }
  if (!recording.launches) {
    recording.launches = gpu_.record([&] { recording.logits_V = run(); });
    cache_.truncate(length);
  }
  recording.launches->replay();
  cache_.advance(1);
  return recording.logits_V;
}

}  // namespace kvdiv
