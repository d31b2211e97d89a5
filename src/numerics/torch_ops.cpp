#include "torch_ops.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include <limits>
#include <utility>
#include <vector>

#include "rotate_half.h"

namespace kvdiv {
namespace {

/// Where the reference computes in FP32, a float64 run computes in double.
at::ScalarType wide(at::ScalarType compute) { return compute == at::kDouble ? at::kDouble : at::kFloat; }

double lowest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<c10::Half>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::lowest();
    case at::kFloat:
      return std::numeric_limits<float>::lowest();
    default:
      return std::numeric_limits<double>::lowest();
  }
}

/// [B,G,S,D] → [B,G·R,S,D], each head R times in a row. A copy where R > 1, as in the reference: a strided view would
/// reach another kernel.
at::Tensor repeat_kv(const at::Tensor& x_BGSD, std::int64_t n_repeats) {
  if (n_repeats == 1) return x_BGSD;
  const auto B = x_BGSD.size(0), G = x_BGSD.size(1), S = x_BGSD.size(2), D = x_BGSD.size(3);
  return x_BGSD.unsqueeze(2).expand({B, G, n_repeats, S, D}).reshape({B, G * n_repeats, S, D});
}

/// x·factor. Not mul_(Scalar): that one rounds the factor to FP16 first, and gives other bits than the reference.
at::Tensor times(at::Tensor x, double factor, bool in_place) {
  const at::Tensor number = at::native::wrapped_scalar_tensor(factor);
  return in_place ? at::mul_out(x, x, number) : at::mul(x, number);
}

at::Tensor capped(at::Tensor x, double cap, bool in_place) {
  if (!in_place) return at::mul(at::tanh(at::div(x, cap)), cap);
  at::div_out(x, x, at::native::wrapped_scalar_tensor(cap));
  return times(x.tanh_(), cap, true);
}

/// 0 where visible, the lowest finite value where hidden, as the reference has it. A score below −16 makes the sum −inf in
/// FP16; that is no harm: a hidden key's weight is exactly 0 either way, and every query sees at least itself.
at::Tensor additive_mask(const at::Tensor& visible_TS, at::ScalarType compute) {
  const at::Tensor zero = at::scalar_tensor(0.0, visible_TS.options().dtype(compute));
  return at::where(visible_TS, zero, at::full_like(zero, lowest(compute)));
}

/// In FP32 (double for float64), rounded back. The scores are given up before the rounding takes its memory.
at::Tensor softmax(at::Tensor scores, at::ScalarType compute) {
  const at::Tensor weights = at::softmax(scores, -1, wide(compute));
  scores.reset();
  return weights.to(compute);
}

}  // namespace

at::Tensor TorchOps::rows(const Matrix& w, const at::Tensor& ids_BT) const { return at::embedding(w.data, ids_BT); }

at::Tensor TorchOps::linear(const at::Tensor& x_BTK, const Matrix& w) const {
  // Folded to two dimensions by hand. ATen folds a product with a 2-D weight only if the weight requires a gradient (as the
  // reference's do) or the rows are evenly strided; a last row cut out of [1,T,K] is not, and would reach the batched
  // kernel, which sums in another order in FP16.
  std::vector<std::int64_t> shape = x_BTK.sizes().vec();
  shape.back() = w.n_rows;
  return at::linear(x_BTK.reshape({-1, x_BTK.size(-1)}), w.data).view(shape);
}

at::Tensor TorchOps::rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const {
  const auto compute = x_BTC.scalar_type();
  const at::Tensor x = x_BTC.to(wide(compute));
  const at::Tensor variance = at::mean(at::pow(x, 2), at::IntArrayRef{-1}, /*keepdim=*/true);
  const at::Tensor normed = at::mul(x, at::rsqrt(at::add(variance, params.eps)));
  if (params.round_before_weight) {
    const at::Tensor gain = params.offset == 0.0 ? w_C : at::add(w_C, params.offset);
    return at::mul(gain, normed.to(compute));
  }
  const at::Tensor w = w_C.to(wide(compute));
  const at::Tensor gain = params.offset == 0.0 ? w : at::add(w, params.offset);
  return at::mul(normed, gain).to(compute);
}

at::Tensor TorchOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                               const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  const auto compute = q_BHTD.scalar_type();
  const std::int64_t n_repeats = q_BHTD.size(1) / k_BGSD.size(1);
  const at::Tensor k_BHSD = repeat_kv(k_BGSD, n_repeats);
  const at::Tensor v_BHSD = repeat_kv(v_BGSD, n_repeats);
  at::Tensor scores = at::matmul(q_BHTD, k_BHSD.transpose(2, 3));
  // In place: of [B,H,T,S], which over a long prefix is the largest tensor of a run, there is one and not four. The values
  // are those of the copying forms. A tap may keep what it was shown, so with one there are copies.
  const bool in_place = tap.tap == nullptr;
  scores = tap(Site::scores, times(scores, params.scale, in_place));
  if (params.cap) scores = tap(Site::capped_scores, capped(scores, *params.cap, in_place));
  if (visible_TS.defined()) {
    const at::Tensor mask_TS = additive_mask(visible_TS, compute);
    scores = in_place ? at::add_out(scores, scores, mask_TS) : at::add(scores, mask_TS);
  }
  const at::Tensor weights_BHTS = tap(Site::weights, softmax(std::move(scores), compute));
  const at::Tensor mix_BHTD = tap(Site::mix, at::matmul(weights_BHTS, v_BHSD));
  return mix_BHTD.transpose(1, 2).contiguous().reshape({q_BHTD.size(0), q_BHTD.size(2), -1});
}

at::Tensor TorchOps::log_softmax(const at::Tensor& x) const { return at::log_softmax(x, -1, wide(x.scalar_type())); }

at::Tensor TorchOps::rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const {
  return rotate_half_form(x_BHTD, cos_11TD, sin_11TD);
}

at::Tensor TorchOps::gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const {
  return at::mul(activation == Activation::silu ? at::silu(gate_BTF) : at::gelu(gate_BTF, "tanh"), up_BTF);
}

at::Tensor TorchOps::soft_cap(const at::Tensor& x, double cap) const { return capped(x, cap, false); }

std::string TorchOps::unsupported(const AttentionNeeds&) const { return {}; }

at::Tensor TorchSdpaOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                                   const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  const std::int64_t n_repeats = q_BHTD.size(1) / k_BGSD.size(1);
  // An explicit mask, never is_causal: that flag anchors the triangle at the top left, which is wrong for 1 < T < S.
  const std::optional<at::Tensor> mask =
      visible_TS.defined() ? std::optional<at::Tensor>(visible_TS.unsqueeze(0).unsqueeze(0)) : std::nullopt;
  const at::Tensor mix_BHTD =
      at::scaled_dot_product_attention(q_BHTD, repeat_kv(k_BGSD, n_repeats), repeat_kv(v_BGSD, n_repeats), mask,
                                       /*dropout_p=*/0.0, /*is_causal=*/false, params.scale);
  return tap(Site::mix, mix_BHTD).transpose(1, 2).contiguous().reshape({q_BHTD.size(0), q_BHTD.size(2), -1});
}

std::string TorchSdpaOps::unsupported(const AttentionNeeds& needs) const {
  return needs.cap ? "--attention sdpa cannot soft-cap attention scores; use --attention eager" : "";
}

}  // namespace kvdiv
