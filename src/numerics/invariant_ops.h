#pragma once
// The invariant backend: every sum in one fixed order (numerics/kernels.h), the reference's rounding points. A row's bits do
// not depend on how many rows are computed with it, on the number of threads, on the vector width or on the CPU, so that ON
// and OFF agree bit for bit in every dtype, prefill in chunks or not.
#include "kvdiv/numerics/kernels.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

class InvariantOps final : public Ops {
 public:
  explicit InvariantOps(const KernelTable& kernels) : k_(kernels) {}

  /// [N,K] → [⌈N/32⌉,K,32] in the same dtype, padded with zeros.
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
  std::string unsupported(const AttentionNeeds& needs) const override;

 private:
  const KernelTable& k_;
};

}  // namespace kvdiv
