#pragma once
// The one mask function, used by both arms: visibility is a matter of positions and the window, of nothing else.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace kvdiv {

/// A query sees the keys at its own position and before, and with a window only the last `window` of them, itself
/// included.
constexpr bool is_visible(std::int64_t query, std::int64_t key, std::optional<std::int64_t> window) {
  return key <= query && (!window || key > query - *window);
}

/// Boolean [T,S], true where visible, for queries first_query … +T−1 and keys first_key … +S−1; undefined if every query
/// sees every key.
at::Tensor visibility(std::int64_t first_query, std::int64_t n_queries, std::int64_t first_key, std::int64_t n_keys,
                      std::optional<std::int64_t> window, c10::Device device = c10::kCPU);

}  // namespace kvdiv
