#pragma once
// The key/value cache of the ON arm: preallocated, appended to in place, seen through views. It stores what rotary left,
// in the compute dtype. Appending past the capacity is an error, never a truncation.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

class KvCache {
 public:
  /// All layers of a model for up to `capacity` positions: 2·layers·kv_heads·capacity·head_dim elements.
  KvCache(const ModelConfig& config, DType dtype, std::int64_t capacity, c10::Device device);

  static std::uint64_t n_bytes(const ModelConfig& config, DType dtype, std::int64_t capacity);

  /// Positions stored: the next token's position.
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }

  struct View {
    at::Tensor keys_BGSD, values_BGSD;
    std::int64_t first_position = 0;  ///< position of the first key
  };

  /// Stores T new keys and values [1,G,T,D] of a layer behind the `length()` stored ones and returns what a query block of
  /// these T positions attends: everything, or with a window the last window − 1 old keys and the new ones, which is what
  /// the reference's sliding cache keeps (its products have that shape, and shapes decide bits).
  View append(std::int64_t layer, const at::Tensor& k_BGTD, const at::Tensor& v_BGTD,
              std::optional<std::int64_t> window);

  /// Called once all layers have appended T positions.
  void advance(std::int64_t n_tokens);

  /// Forgets the positions from `length` on. 0 ≤ length ≤ length().
  void truncate(std::int64_t length);

  /// What is stored of a layer, [1,G,length(),D]; the view writes through, which is how a cache is patched.
  at::Tensor keys(std::int64_t layer) const;
  at::Tensor values(std::int64_t layer) const;

  /// A copy with memory of its own: what is done to it does not reach this cache.
  KvCache fork() const;

 private:
  KvCache() = default;
  std::vector<at::Tensor> keys_, values_;  ///< per layer [1,G,capacity,D]
  std::int64_t length_ = 0, capacity_ = 0;
};

}  // namespace kvdiv
