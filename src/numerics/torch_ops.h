#pragma once
// The torch backend: vendor kernels through ATen, in the reference's order of operations.
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

class TorchOps : public Ops {
 public:
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override;
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override;
  at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const override;
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override;
  at::Tensor log_softmax(const at::Tensor& x) const override;
  at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const override;
  at::Tensor gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const override;
  at::Tensor soft_cap(const at::Tensor& x, double cap) const override;
  std::string unsupported(const AttentionNeeds& needs) const override;
};

/// ATen's fused attention. It cannot cap scores, and shows no scores or weights to a tap.
class TorchSdpaOps final : public TorchOps {
 public:
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override;
  std::string unsupported(const AttentionNeeds& needs) const override;
};

}  // namespace kvdiv
