#pragma once
// The invariant backend on a GPU: kernels.h, and the reference's rounding points. A row's bits do not depend on how many rows
// are computed with it. They are not the CPU's: the two sets of kernels add in different orders.
#include "kvdiv/numerics/ops.h"

namespace kvdiv::cuda {

class InvariantOps final : public Ops {
 public:
  /// [N,K] as a view of rows padded with zeros to a multiple of kTermsMultiple; w itself if it needs no padding.
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
  bool row_invariant() const override { return true; }
  std::string unsupported(const AttentionNeeds&) const override { return {}; }
};

/// x·cos + rotate_half(x)·sin in one launch, with the bits of ATen's four: for every backend on a GPU.
at::Tensor rotate_in_one(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD);

}  // namespace kvdiv::cuda
