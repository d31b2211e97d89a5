#include "trace_kv.h"

#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>

#include "kvdiv/decode/capture.h"

namespace kvdiv {
namespace {

/// [G·S]; in FP64, where half precision would lose the squares.
std::vector<double> relative_errors(const at::Tensor& a_BGSD, const at::Tensor& b_BGSD) {
  const auto norm = [](const at::Tensor& x) { return at::linalg_vector_norm(x, 2.0, at::IntArrayRef{-1}); };
  const at::Tensor b = b_BGSD.to(at::kDouble);
  return host_logits(at::div(norm(at::sub(a_BGSD.to(at::kDouble), b)), norm(b)).reshape({-1}));
}

}  // namespace

KvStates kv_of_on(const Trajectory& t, std::int64_t step, std::int64_t n_layers) {
  KvStates out;
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    out.keys.push_back(t.cache.keys(layer).narrow(2, 0, t.n_prompt() + step));
    out.values.push_back(t.cache.values(layer).narrow(2, 0, t.n_prompt() + step));
  }
  return out;
}

KvStates kv_of_off(const Arms& arms, std::span<const TokenId> tokens) {
  CaptureTap tap([](Site site, std::int64_t) { return site == Site::key_rotary || site == Site::value; });
  arms.off(tokens, &tap);
  KvStates out;
  for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer) {
    out.keys.push_back(tap.at(Site::key_rotary, layer));
    out.values.push_back(tap.at(Site::value, layer));
  }
  return out;
}

std::span<const double> KvErrors::head(std::size_t quantity, std::size_t layer, std::int64_t head) const {
  return std::span(values[quantity][layer])
      .subspan(static_cast<std::size_t>(head * n_positions), static_cast<std::size_t>(n_positions));
}

KvErrors kv_errors(const KvStates& on, const KvStates& off, const KvStates* fp64) {
  KvErrors out;
  out.n_heads = on.keys.front().size(1);
  out.n_positions = on.keys.front().size(2);
  for (std::size_t layer = 0; layer < on.keys.size(); ++layer)
    for (const std::size_t first : {0u, 3u}) {  // K, then V: see kKvErrors
      const auto& member = first == 0 ? &KvStates::keys : &KvStates::values;
      const at::Tensor &a = (on.*member)[layer], &b = (off.*member)[layer];
      out.values[first].push_back(relative_errors(a, b));
      if (fp64 == nullptr) continue;
      const at::Tensor exact = ((*fp64).*member)[layer].narrow(2, 0, out.n_positions);
      out.values[first + 1].push_back(relative_errors(a, exact));
      out.values[first + 2].push_back(relative_errors(b, exact));
    }
  return out;
}

TraceKvRecord kv_record(const KvErrors& errors, std::int64_t step, std::int64_t n_prompt, std::int64_t layer,
                        std::int64_t head) {
  const auto row = [&](std::size_t quantity) {
    const auto values = errors.head(quantity, static_cast<std::size_t>(layer), head);
    return std::vector<double>(values.begin(), values.end());
  };
  TraceKvRecord r;
  r.step = step;
  r.layer = layer + 1;
  r.kv_head = head;
  r.n_prompt = n_prompt;
  r.k_on_off = row(0);
  r.v_on_off = row(3);
  if (errors.values[1].empty()) return r;
  r.k_on_fp64 = row(1), r.k_off_fp64 = row(2);
  r.v_on_fp64 = row(4), r.v_off_fp64 = row(5);
  return r;
}

}  // namespace kvdiv
