#pragma once
// The Tap seam: observing, patching, noise and planted faults all look at, or replace, tensors at named sites of the one
// decoder. No tap and a tap that returns what it was given produce the same bits (a test holds it).
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace kvdiv {

/// Where a tensor can be seen, in the order of computation. Shapes in the legend of model/decoder.h.
enum class Site {
  embedding,            ///< [B,T,C] after the embedding scale; layer 0
  attention_norm,       ///< [B,T,C] input of the projections
  query,                ///< [B,H,T,D] projected, before rotary
  key,                  ///< [B,G,T,D]
  value,                ///< [B,G,T,D]
  query_rotary,         ///< [B,H,T,D]
  key_rotary,           ///< [B,G,T,D] as it goes into the cache
  keys,                 ///< [B,G,S,D] as attended: cached and new
  values,               ///< [B,G,S,D]
  scores,               ///< [B,H,T,S] scaled
  capped_scores,        ///< [B,H,T,S] only where the model caps
  weights,              ///< [B,H,T,S] attention weights in the compute dtype
  mix,                  ///< [B,H,T,D] weights times values
  attention_out,        ///< [B,T,C] output projection
  attention_post_norm,  ///< [B,T,C] only where the model has sandwich norms
  attention_residual,   ///< [B,T,C] residual stream after attention
  mlp_norm,             ///< [B,T,C]
  gate,                 ///< [B,T,F]
  up,                   ///< [B,T,F]
  mlp_product,          ///< [B,T,F] act(gate)·up
  mlp_out,              ///< [B,T,C]
  mlp_post_norm,        ///< [B,T,C] only where the model has sandwich norms
  block,                ///< [B,T,C] residual stream after the block
  final_norm,           ///< [B,T,C] layer = number of layers
  logits,               ///< [B,1,V] after the final cap; layer = number of layers
};
inline constexpr int kSites = static_cast<int>(Site::logits) + 1;

class Tap {
 public:
  Tap() = default;
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;
  virtual ~Tap() = default;
  virtual bool wants(Site site, std::int64_t layer) const = 0;
  /// Whether it only launches work on the tensor's device, at the same addresses in every call: then a recording of a step
  /// may hold it.
  virtual bool only_launches() const { return false; }
  /// The tensor to go on with: the argument itself, or another of the same shape and dtype.
  virtual at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) = 0;
};

/// Whether a tap looks at anything of a layer.
inline bool wants_any(const Tap& tap, std::int64_t layer) {
  for (int site = 0; site < kSites; ++site)
    if (tap.wants(static_cast<Site>(site), layer)) return true;
  return false;
}

/// A tap bound to a layer, or nothing: what the operations call.
struct TapPoint {
  Tap* tap = nullptr;
  std::int64_t layer = 0;

  at::Tensor operator()(Site site, at::Tensor tensor) const {
    return tap != nullptr && tap->wants(site, layer) ? tap->visit(site, layer, tensor) : tensor;
  }
};

}  // namespace kvdiv
