#pragma once
// What is done to ON's cache between its calls: stored wider, refreshed, smoothed, or compressed. The call itself
// attends to what it has just computed, as real systems do: a prefill sees its own keys and values as they are, so that
// step 0 keeps its bits, and a new token is seen once before it is compressed.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "kvdiv/decode/arms.h"

namespace kvdiv {

/// One text long: it may keep state from call to call.
class CacheRemedy {
 public:
  CacheRemedy() = default;
  CacheRemedy(const CacheRemedy&) = delete;
  CacheRemedy& operator=(const CacheRemedy&) = delete;
  virtual ~CacheRemedy() = default;
  /// After a call of ON that stored the last `n_new` of `stored`, all tokens that the cache holds.
  virtual void after_call(const Arms& arms, std::span<const TokenId> stored, std::int64_t n_new, KvCache& cache) = 0;
};

/// Keys and values are kept in FP32 as well and rounded to the cache's dtype again before each call reads them. They
/// come rounded out of products in that dtype, so the numbers are the same.
std::unique_ptr<CacheRemedy> float32_cache(const ModelConfig& config, std::int64_t capacity);

/// After every `interval` (≥ 1) new tokens the whole cache goes towards that of a fresh prefill of the same tokens:
///   (1 − weight)·stored + weight·fresh,  0 ≤ weight ≤ 1,
/// in FP32, rounded once to the cache's dtype. A weight of 1 copies the fresh one, 0 changes nothing (but costs the
/// same). The step's own logits are those of before: what is seen is what a fresh cache does for the steps after it.
std::unique_ptr<CacheRemedy> refreshed_cache(std::int64_t interval, double weight);

/// Positions of a cache stored as integers of `bits` (2 … 8) with a scale a group.
std::unique_ptr<CacheRemedy> quantized_cache(int bits);

/// Neighbours along the head that share a scale; a smaller head is one group, and a rest is a group of its own.
inline constexpr std::int64_t kQuantizationGroup = 32;

/// x [..., D] as it comes back from symmetric absmax quantization along its last dimension, in its own dtype:
///   s = the smallest FP16 ≥ max|x|/q, q = 2^(bits−1) − 1;  x ↦ s·round(x/s), ties to even.
/// |error| ≤ s/2, plus half an ulp where the dtype of x cannot hold the product (FP16: at most q·s·2⁻¹¹). The scale is
/// rounded up so that nothing is clipped. A group of zeros keeps them.
at::Tensor quantize_dequantize(const at::Tensor& x, int bits, std::int64_t group = kQuantizationGroup);

/// Bytes of keys and values of a whole model in that form: packed integers, and two bytes of scale a group.
std::uint64_t quantized_cache_bytes(const ModelConfig& config, int bits, std::int64_t n_positions);

}  // namespace kvdiv
