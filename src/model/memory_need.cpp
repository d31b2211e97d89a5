#include "kvdiv/model/memory_need.h"

#include <initializer_list>
#include <limits>

namespace kvdiv {
namespace {

constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

std::uint64_t product(std::initializer_list<std::int64_t> factors) {
  std::uint64_t out = 1;
  bool overflows = false;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    if (factor < 0) return kTooMany;  // a sum that overflowed before it came here
    overflows = __builtin_mul_overflow(out, static_cast<std::uint64_t>(factor), &out) || overflows;
  }
  return overflows ? kTooMany : out;
}

std::uint64_t sum(std::initializer_list<std::uint64_t> terms) {
  std::uint64_t out = 0;
  for (const std::uint64_t term : terms)
    if (__builtin_add_overflow(out, term, &out)) return kTooMany;
  return out;
}

}  // namespace

std::uint64_t MemoryNeed::total() const { return sum({weights, cache, activations, logits}); }

std::uint64_t weight_bytes(const ModelConfig& config, DType dtype) {
  return product({config.n_params(), size_of(dtype)});
}

std::uint64_t cache_bytes(const ModelConfig& config, DType dtype, std::int64_t length) {
  const ModelSizes& s = config.sizes;
  return product({2, s.n_layers, s.n_kv_heads, s.head_dim, length, size_of(dtype)});
}

MemoryNeed memory_need(const ModelConfig& config, DType dtype, std::int64_t length) {
  const ModelSizes& s = config.sizes;
  const std::int64_t size = size_of(dtype);
  MemoryNeed need;
  need.weights = weight_bytes(config, dtype);
  need.cache = cache_bytes(config, dtype, length);
  // Per position: residual stream and norms (with FP32 copies), q, k, v and their repeats, the MLP's three rows. Scores:
  // the product, the scaled one, the masked one, softmax in FP32 and its rounding.
  need.activations =
      sum({product({length, 6, s.hidden, size + 4}), product({length, 6, s.n_heads, s.head_dim, size}),
           product({length, 4, s.intermediate, size}), product({s.n_heads, length, length, 4 * size + 8})});
  need.logits = product({6, s.vocab, 8});
  return need;
}

}  // namespace kvdiv
