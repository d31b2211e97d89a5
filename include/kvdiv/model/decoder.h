#pragma once
// The one decoder of the three architectures. What differs is in Traits; what sums is in Ops; what looks is a Tap.
//
// Shape legend: B batch (always 1), T positions of this call, S positions attended, C hidden size, F intermediate size,
// H query heads, G key/value heads, R = H/G, D head size, V vocabulary, N rows of a weight, K its columns.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/text.h"
#include "kvdiv/model/cache.h"
#include "kvdiv/model/config.h"
#include "kvdiv/numerics/ops.h"
#include "kvdiv/numerics/tap.h"

namespace kvdiv {

/// A parameter by the checkpoint's name, with the checkpoint's shape. `tensor` refers to the module's own member; a matrix
/// is kept as the backend packs it: Decoder::put and Decoder::plain go to and from the checkpoint's layout.
struct NamedWeight {
  std::string name;
  std::vector<std::int64_t> shape;
  at::Tensor* tensor;
  Matrix matrix() const { return {*tensor, shape.front()}; }
};

/// Elements of room behind each weight that load_model makes, so that realigning needs no second copy of a model.
inline constexpr std::int64_t kWeightSlack = 64;

/// A departure from the rules of positions and visibility: what a planted fault does. The default departs nowhere.
struct Departure {
  std::optional<std::int64_t> rotary_first;  ///< rotary position of the call's first token, whatever the cache holds
  bool causal = true;                        ///< false: the call's tokens also see those behind them
};

/// A handle: copies share the weights.
class Decoder {
 public:
  /// Without weights: model/weights.h puts them in. Throws Error{usage} if the backend cannot express the model.
  Decoder(const ModelConfig& config, DType dtype, std::shared_ptr<const Ops> ops, c10::Device device = c10::kCPU);
  ~Decoder();
  Decoder(const Decoder&);
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(const Decoder&);
  Decoder& operator=(Decoder&&) noexcept;

  const ModelConfig& config() const;
  DType dtype() const;
  c10::Device device() const;
  const Ops& ops() const;
  /// An empty cache for this model, where it computes.
  KvCache make_cache(std::int64_t capacity) const;

  /// Every parameter, under the name that a checkpoint gives it. A tied head has none of its own.
  std::vector<NamedWeight> weights();
  /// A weight in the checkpoint's layout, and back into the module (which keeps it as the backend packs it).
  at::Tensor plain(const NamedWeight& weight) const;
  void put(const NamedWeight& weight, at::Tensor plain);

  /// Logits [V] of the last position, in the compute dtype. Position numbers start at `cache ? cache->length() : 0`. With
  /// a cache its keys and values come before the new ones and the T new positions are appended; without one `tokens` is
  /// the whole prefix. `tap` may be null.
  at::Tensor forward(std::span<const TokenId> tokens, KvCache* cache, Tap* tap = nullptr,
                     const Departure& departure = {}) const;
  /// The same with the ids [1,T] (int64) where the model computes: nothing is uploaded, so that the launches can be
  /// recorded.
  at::Tensor forward_ids(const at::Tensor& ids_BT, KvCache* cache, Tap* tap = nullptr,
                         const Departure& departure = {}) const;

  /// A decoder of another config over the same weights, now and later; sizes must be the same.
  Decoder changed(const ModelConfig& config) const;
  /// Whether both are handles of one decoder.
  bool is_same_model(const Decoder& other) const { return impl_ == other.impl_; }

  /// Moves every weight by `offset_bytes` (a multiple of 8, at most kWeightSlack) inside its own memory: the same
  /// values at another alignment, for the control that expects the same bits.
  void realign_weights(std::int64_t offset_bytes);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace kvdiv
