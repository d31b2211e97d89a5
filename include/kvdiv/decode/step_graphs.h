#pragma once
// ON's steps on a GPU as recorded launches (CUDA graphs): a small model's step, or a fast GPU's, takes less time than its
// thousand launches. A recording holds shapes and addresses, so there is one for each length of the cache, in one cache that
// stays where it is; it is made the second time that a length occurs. What is repeated is what was computed before, kernel
// for kernel: the bits do not change.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

#include "kvdiv/model/decoder.h"
#include "kvdiv/numerics/device.h"

namespace kvdiv {

class StepGraphs {
 public:
  /// For sequences of up to `capacity` positions. The decoder must outlive it, and must be on a GPU (usage error else).
  StepGraphs(const Decoder& decoder, std::int64_t capacity);

  KvCache& cache() { return cache_; }
  /// decoder.forward({token}, &cache(), tap): the logits [V] are overwritten by the next step of this length. `tap` may be
  /// null; one that does more than launch is not recorded, and a recording holds the tap that it was made with,
  /// which must outlive this.
  at::Tensor step(TokenId token, Tap* tap);

  std::int64_t n_recorded() const;

 private:
  struct Key {
    std::int64_t length;
    const Tap* tap;
    auto operator<=>(const Key&) const = default;
  };
  struct Recording {
    bool was_seen = false;
    std::unique_ptr<RecordedLaunches> launches;
    at::Tensor logits_V;
  };

  const Decoder& decoder_;
  const DeviceModule& gpu_;
  KvCache cache_;
  at::Tensor ids_BT_;  ///< [1,1] on the device: where a recording reads its token
  std::map<Key, Recording> recordings_;
};

}  // namespace kvdiv
