#include "kvdiv/model/cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kvdiv/base/error.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/model/memory_need.h"

namespace kvdiv {

KvCache::KvCache(const ModelConfig& config, DType dtype, std::int64_t capacity, c10::Device device)
    : capacity_(capacity) {
  const auto& s = config.sizes;
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(device);
  for (std::int64_t layer = 0; layer < s.n_layers; ++layer) {
    keys_.push_back(at::empty({1, s.n_kv_heads, capacity, s.head_dim}, options));
    values_.push_back(at::empty({1, s.n_kv_heads, capacity, s.head_dim}, options));
  }
}

std::uint64_t KvCache::n_bytes(const ModelConfig& config, DType dtype, std::int64_t capacity) {
  return cache_bytes(config, dtype, capacity);
}

KvCache::View KvCache::append(std::int64_t layer, const at::Tensor& k_BGTD, const at::Tensor& v_BGTD,
                              std::optional<std::int64_t> window) {
  at::Tensor& keys = keys_.at(static_cast<std::size_t>(layer));
  at::Tensor& values = values_.at(static_cast<std::size_t>(layer));
  const std::int64_t T = k_BGTD.size(2);
  if (length_ + T > capacity_)
    fail(ErrorKind::internal, "cache: {} positions stored and {} more do not fit into its capacity of {}", length_, T,
         capacity_);
  if (k_BGTD.scalar_type() != keys.scalar_type() || v_BGTD.scalar_type() != values.scalar_type())
    fail(ErrorKind::internal, "cache: keys of another dtype ({}) than the cache's ({}): a silent promotion",
         c10::toString(k_BGTD.scalar_type()), c10::toString(keys.scalar_type()));
  keys.narrow(2, length_, T).copy_(k_BGTD);
  values.narrow(2, length_, T).copy_(v_BGTD);
  const std::int64_t first = window ? std::max<std::int64_t>(0, length_ - (*window - 1)) : 0;
  const std::int64_t S = length_ + T - first;
  return {keys.narrow(2, first, S), values.narrow(2, first, S), first};
}

void KvCache::advance(std::int64_t n_tokens) { length_ += n_tokens; }

void KvCache::truncate(std::int64_t length) {
  if (length < 0 || length > length_)
    fail(ErrorKind::internal, "cache: cannot be cut to {} of {} positions", length, length_);
  length_ = length;
}

at::Tensor KvCache::keys(std::int64_t layer) const {
  return keys_.at(static_cast<std::size_t>(layer)).narrow(2, 0, length_);
}
at::Tensor KvCache::values(std::int64_t layer) const {
  return values_.at(static_cast<std::size_t>(layer)).narrow(2, 0, length_);
}

KvCache KvCache::fork() const {
  KvCache copy;
  copy.length_ = length_;
  copy.capacity_ = capacity_;
  for (const auto& k : keys_) copy.keys_.push_back(k.clone());
  for (const auto& v : values_) copy.values_.push_back(v.clone());
  return copy;
}

}  // namespace kvdiv
