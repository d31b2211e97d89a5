#pragma once
// What grouped-query attention does to errors of keys and values. R query heads that share a KV head share its errors too;
// the control is the same function in which each query head has a copy of its own, with errors of its own. Shared errors
// can add up: their effect is that of independent ones times √R if the heads' effects are the same, times 1 if they have
// nothing to do with each other, and less if they cancel.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/experiments/trace.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// R query heads a KV head, made of one checkpoint.
struct GqaVariant {
  std::int64_t R = 1;
  std::string source;  ///< "as is"; "repeated" (the same function); "pooled": means of neighbouring KV heads
};

/// R = 1, 2, 4, 8 and the checkpoint's own, where R divides the number of query heads.
std::vector<GqaVariant> gqa_variants(const ModelSizes& sizes);

/// The checkpoint with R query heads a KV head; all other weights are shared with `base`. `copies`: the same function in
/// which every query head has its own copy of the keys and values.
Decoder make_variant(Decoder& base, std::shared_ptr<const Ops> ops, std::int64_t R, bool copies);

/// x (1 + size·g), g standard normal for (draw, layer, keys or values, head, position, dimension) whatever the order.
struct KvNoise {
  double size = 0.0;
  std::uint64_t seed = 0;
  std::uint32_t draw = 0;
  at::Tensor apply(const at::Tensor& x_BGTD, std::int64_t layer, bool values) const;
};

/// Mean cosine of the error vectors of two query heads, over pairs that share a KV head, and over those that do not; none
/// where there are no such pairs. gram_HH: inner products of the errors, summed over draws.
struct HeadCorrelation {
  std::optional<double> shared, other;
};
HeadCorrelation correlate_heads(const at::Tensor& gram_HH, std::int64_t R);

struct GqaResult {
  Json rows = Json::array();       ///< [{R, n_kv_heads, source, amplification, …}]
  Json by_layer = Json::array();   ///< noise in one layer, seen at its own output projection
  double copies_max_rel = 0.0;     ///< largest relative difference of the logits with and without copies, without noise
  double attention_max_rel = 0.0;  ///< of a layer's attention computed alone, without noise, from the model's own
  bool complete = false;           ///< not interrupted
};

/// `base` in a dtype whose rounding is far below the noise.
GqaResult run_gqa(Context& context, const TraceParams& params, Decoder& base);

}  // namespace kvdiv
