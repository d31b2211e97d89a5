#pragma once
// The backend `order:…`: the reference's eager arithmetic, with the order of every sum given by a reduction spec. What is
// rounded where is as in torch_ops.cpp; what differs is the order, and that it is known.
#include "kvdiv/numerics/ops.h"
#include "kvdiv/numerics/reduction.h"

namespace kvdiv {

/// A call with one row (one query) takes the spec for decoding, any other that for the prefill.
/// - Sums of products: linear (over K), q·k (over D), weights·V (over the visible keys). They take order and accumulator.
/// - Sums of squares and of exponentials: rms_norm (over C), softmax (over the visible keys), log_softmax. They take the
///   order; their accumulator is FP32 (double for float64) even under @float16, as in kernels that accumulate products in
///   FP16: a sum of squares would overflow there.
/// Hidden keys are left out of both sums of attention, not added as zeros: how many of them there are changes no bit.
/// exp, tanh, SiLU and GELU are computed an element at a time, in FP64, rounded to FP32 and then to the compute dtype.
class OrderOps final : public Ops {
 public:
  explicit OrderOps(Reductions reductions) : reductions_(reductions) {}

  /// [N,K] → [⌈N/16⌉,K,16], padded with zeros: the columns of one vector lie side by side.
  at::Tensor pack(const at::Tensor& w_NK) const override;
  at::Tensor unpack(const Matrix& w) const override;
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override;

  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override;
  at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const override;
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override;
  at::Tensor log_softmax(const at::Tensor& x) const override;
  at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const override;
  at::Tensor gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const override;
  at::Tensor soft_cap(const at::Tensor& x, double cap) const override;
  bool row_invariant() const override { return reductions_.same_order(); }
  bool place_invariant() const override { return true; }
  std::string unsupported(const AttentionNeeds& needs) const override;

 private:
  Reductions reductions_;
};

}  // namespace kvdiv
