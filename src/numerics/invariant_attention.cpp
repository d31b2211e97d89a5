// Attention of the invariant backend. A row (one head of one query) is computed by itself over the keys that it sees, in
// their order: it does not matter how many other queries there are, nor how many hidden keys.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "invariant_ops.h"
#include "kvdiv/base/error.h"
#include "kvdiv/numerics/tensor_storage.h"

namespace kvdiv {
namespace {

/// Operands of one call, widened once for all rows that read them.
class RowAttention {
 public:
  RowAttention(const KernelTable& kernels, const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
               const at::Tensor& visible_TS, const AttentionParams& params);

  at::Tensor fused() const;
  at::Tensor staged(TapPoint tap) const;
  bool every_query_sees_a_stretch() const { return contiguous_; }

 private:
  char* bytes(const at::Tensor& t) const { return static_cast<char*>(t.data_ptr()); }
  at::Tensor widened(const at::Tensor& x_HSD) const;
  ScoreCall score_call(std::int64_t h, std::int64_t t, std::int64_t first, std::int64_t n, void* scores) const;
  MixCall mix_call(std::int64_t h, std::int64_t t, std::int64_t first, std::int64_t n, const void* weights,
                   const at::Tensor& out_BTHD) const;
  template <class F>
  void for_rows(F f) const;
  void find_visible(const at::Tensor& visible_TS);
  void softmax_row(const char* scores, std::int64_t t, void* scratch, char* weights) const;

  const KernelTable& k_;
  Storage storage_;
  at::ScalarType dtype_;
  AttentionParams params_;
  std::int64_t H, G, T, S, D, padded_, wide_bytes_, size_;
  at::Tensor q_, keys_, values_;                 ///< [H,T,padded D], [G,S,padded D], widened
  std::vector<std::vector<std::int64_t>> gaps_;  ///< keys that a query sees, where they are not one stretch
  std::vector<std::pair<std::int64_t, std::int64_t>> visible_;  ///< per query: first key, number of keys
  bool contiguous_ = true;
};

RowAttention::RowAttention(const KernelTable& kernels, const at::Tensor& q_BHTD, const at::Tensor& k_BGSD,
                           const at::Tensor& v_BGSD, const at::Tensor& visible_TS, const AttentionParams& params)
    : k_(kernels),
      storage_(storage_of(q_BHTD)),
      dtype_(q_BHTD.scalar_type()),
      params_(params),
      H(q_BHTD.size(1)),
      G(k_BGSD.size(1)),
      T(q_BHTD.size(2)),
      S(k_BGSD.size(2)),
      D(q_BHTD.size(3)),
      padded_(padded_row(D)),
      wide_bytes_(dtype_ == at::kDouble ? 8 : 4),
      size_(q_BHTD.element_size()) {
  if (q_BHTD.size(0) != 1) fail(ErrorKind::internal, "attention of a batch of {}", q_BHTD.size(0));
  require_same_dtype(q_BHTD, k_BGSD);
  require_same_dtype(q_BHTD, v_BGSD);
  q_ = widened(q_BHTD.select(0, 0));
  keys_ = widened(k_BGSD.select(0, 0));
  values_ = widened(v_BGSD.select(0, 0));
  find_visible(visible_TS);
}

at::Tensor RowAttention::widened(const at::Tensor& x) const {
  const at::Tensor x_HSD = x.stride(2) == 1 ? x : x.contiguous();
  const std::int64_t n = x_HSD.size(1);
  at::Tensor out = at::empty({x_HSD.size(0), n, padded_}, x.options().dtype(wide_type(dtype_)));
  const char* const from = bytes(x_HSD);
  char* const to = bytes(out);
  at::parallel_for(0, x_HSD.size(0) * n, 32768 / padded_ + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      k_.widen(storage_, from + (i / n * x_HSD.stride(0) + i % n * x_HSD.stride(1)) * size_, D, padded_,
               to + i * padded_ * wide_bytes_);
  });
  return out;
}

/// Queries see one stretch of keys in every mask that kvdiv makes; another mask takes the staged way.
void RowAttention::find_visible(const at::Tensor& visible_TS) {
  visible_.assign(static_cast<std::size_t>(T), {0, S});
  if (!visible_TS.defined()) return;
  const at::Tensor mask = visible_TS.contiguous();
  for (std::int64_t t = 0; t < T; ++t) {
    const bool* const row = mask.const_data_ptr<bool>() + t * S;
    const std::int64_t first = std::find(row, row + S, true) - row, n = std::count(row, row + S, true);
    visible_[static_cast<std::size_t>(t)] = {first, n};
    if (n > 0 && std::find(row + first, row + S, false) - row < first + n) contiguous_ = false;
  }
  if (contiguous_) return;
  gaps_.resize(static_cast<std::size_t>(T));
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t s = 0; s < S; ++s)
      if (mask.const_data_ptr<bool>()[t * S + s]) gaps_[static_cast<std::size_t>(t)].push_back(s);
}

ScoreCall RowAttention::score_call(std::int64_t h, std::int64_t t, std::int64_t first, std::int64_t n,
                                   void* scores) const {
  const std::int64_t row = padded_ * wide_bytes_;
  return {bytes(q_) + (h * T + t) * row, bytes(keys_) + (h / (H / G) * S + first) * row, scores, n, D, params_.scale,
          params_.cap.value_or(0.0)};
}

MixCall RowAttention::mix_call(std::int64_t h, std::int64_t t, std::int64_t first, std::int64_t n, const void* weights,
                               const at::Tensor& out_BTHD) const {
  return {weights, bytes(values_) + (h / (H / G) * S + first) * padded_ * wide_bytes_,
          bytes(out_BTHD) + (t * H + h) * D * size_, n, D};
}

/// f(h, t, scratch): scratch holds padded_row(S) widened numbers. Heads are split among threads: rows of a head cost
/// unlike much.
template <class F>
void RowAttention::for_rows(F f) const {
  at::parallel_for(0, H * T, 32768 / (S * D) + 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> scratch(static_cast<std::size_t>(padded_row(S) * wide_bytes_ / 8 + 8));
    for (std::int64_t i = begin; i < end; ++i) f(i / T, i % T, static_cast<void*>(scratch.data()));
  });
}

at::Tensor RowAttention::fused() const {
  at::Tensor out_BTHD = at::empty({1, T, H, D}, at::TensorOptions().dtype(dtype_));
  for_rows([&](std::int64_t h, std::int64_t t, void* scratch) {
    const auto [first, n] = visible_[static_cast<std::size_t>(t)];
    const ScoreCall call = score_call(h, t, first, n, scratch);
    k_.products(storage_, call);
    if (params_.cap) k_.cap_scores(storage_, call);
    k_.softmax(storage_, scratch, n);
    k_.mix(storage_, mix_call(h, t, first, n, scratch, out_BTHD));
  });
  return out_BTHD;
}

/// The visible scores of a row, packed together, to weights; hidden keys get exactly 0, which the mix leaves out.
void RowAttention::softmax_row(const char* scores, std::int64_t t, void* scratch, char* weights) const {
  const auto [first, n] = visible_[static_cast<std::size_t>(t)];
  std::memset(weights, 0, static_cast<std::size_t>(S * size_));
  if (contiguous_) {
    k_.widen(storage_, scores + first * size_, n, n, scratch);
    k_.softmax(storage_, scratch, n);
    k_.narrow(storage_, scratch, n, weights + first * size_);
    return;
  }
  const auto& keys = gaps_[static_cast<std::size_t>(t)];
  auto* const wide = static_cast<char*>(scratch);
  for (std::size_t i = 0; i < keys.size(); ++i)
    k_.widen(storage_, scores + keys[i] * size_, 1, 1, wide + static_cast<std::int64_t>(i) * wide_bytes_);
  k_.softmax(storage_, scratch, n);
  for (std::size_t i = 0; i < keys.size(); ++i)
    k_.narrow(storage_, wide + static_cast<std::int64_t>(i) * wide_bytes_, 1, weights + keys[i] * size_);
}

/// The same in stages, for a tap to look at, or to change, what lies between them.
at::Tensor RowAttention::staged(TapPoint tap) const {
  const auto at_row = [&](const at::Tensor& x_BHTS, std::int64_t h, std::int64_t t) {
    return bytes(x_BHTS) + (h * T + t) * S * size_;
  };
  at::Tensor scores = at::empty({1, H, T, S}, at::TensorOptions().dtype(dtype_));
  for_rows([&](std::int64_t h, std::int64_t t, void* scratch) {
    k_.products(storage_, score_call(h, t, 0, S, scratch));
    k_.narrow(storage_, scratch, S, at_row(scores, h, t));
  });
  scores = tap(Site::scores, scores).contiguous();
  if (params_.cap) {
    at::Tensor capped = at::empty(scores.sizes(), scores.options());
    k_.soft_cap(storage_, scores.const_data_ptr(), *params_.cap, scores.numel(), capped.mutable_data_ptr());
    scores = tap(Site::capped_scores, capped).contiguous();
  }
  at::Tensor weights = at::empty(scores.sizes(), scores.options());
  for_rows([&](std::int64_t h, std::int64_t t, void* scratch) {
    softmax_row(at_row(scores, h, t), t, scratch, at_row(weights, h, t));
  });
  weights = tap(Site::weights, weights).contiguous();
  at::Tensor out_BTHD = at::empty({1, T, H, D}, scores.options());
  for_rows([&](std::int64_t h, std::int64_t t, void* scratch) {
    k_.widen(storage_, at_row(weights, h, t), S, S, scratch);
    k_.mix(storage_, mix_call(h, t, 0, S, scratch, out_BTHD));
  });
  return out_BTHD;
}

bool wants_stages(TapPoint tap) {
  return tap.tap != nullptr && (tap.tap->wants(Site::scores, tap.layer) || tap.tap->wants(Site::weights, tap.layer) ||
                                tap.tap->wants(Site::capped_scores, tap.layer));
}

}  // namespace

at::Tensor InvariantOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                                   const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  const RowAttention rows(k_, q_BHTD, k_BGSD, v_BGSD, visible_TS, params);
  const bool stages = wants_stages(tap) || !rows.every_query_sees_a_stretch();
  const at::Tensor mix_BTHD = stages ? rows.staged(tap) : rows.fused();
  const at::Tensor mix_BHTD = tap(Site::mix, mix_BTHD.transpose(1, 2));
  return mix_BHTD.transpose(1, 2).reshape({1, q_BHTD.size(2), -1});
}

}  // namespace kvdiv
