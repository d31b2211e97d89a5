#include "kvdiv/model/mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

namespace kvdiv {
namespace {

/// is_visible for all pairs at once, on the device: an upload of [T,S] would make every step wait.
at::Tensor visibility_there(std::int64_t first_query, std::int64_t n_queries, std::int64_t first_key,
                            std::int64_t n_keys, std::optional<std::int64_t> window, c10::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor query_T1 = at::arange(first_query, first_query + n_queries, options).unsqueeze(1);
  const at::Tensor key_1S = at::arange(first_key, first_key + n_keys, options).unsqueeze(0);
  const at::Tensor before = key_1S <= query_T1;
  return window ? before & (key_1S > query_T1 - *window) : before;
}

}  // namespace

at::Tensor visibility(std::int64_t first_query, std::int64_t n_queries, std::int64_t first_key, std::int64_t n_keys,
                      std::optional<std::int64_t> window, c10::Device device) {
  const std::int64_t last_query = first_query + n_queries - 1, last_key = first_key + n_keys - 1;
  // The first query sees the fewest new keys, the last one the fewest old ones.
  if (is_visible(first_query, last_key, window) && is_visible(last_query, first_key, window)) return {};
  if (!device.is_cpu()) return visibility_there(first_query, n_queries, first_key, n_keys, window, device);
  at::Tensor mask_TS = at::empty({n_queries, n_keys}, at::TensorOptions().dtype(at::kBool));
  bool* out = mask_TS.mutable_data_ptr<bool>();
  for (std::int64_t t = 0; t < n_queries; ++t)
    for (std::int64_t s = 0; s < n_keys; ++s) *out++ = is_visible(first_query + t, first_key + s, window);
  return mask_TS;
}

}  // namespace kvdiv
