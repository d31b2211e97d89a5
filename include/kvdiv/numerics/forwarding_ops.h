#pragma once
// Operations that pass everything on: what wraps a backend overrides what it changes.
#include <memory>
#include <string>
#include <utility>

#include "kvdiv/numerics/ops.h"

namespace kvdiv {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(std::shared_ptr<const Ops> wrapped) : wrapped_(std::move(wrapped)) {}

  at::Tensor pack(const at::Tensor& w_NK) const override { return wrapped_->pack(w_NK); }
  at::Tensor unpack(const Matrix& w) const override { return wrapped_->unpack(w); }
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override { return wrapped_->rows(w, ids_BT); }
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override { return wrapped_->linear(x_BTK, w); }
  at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const override {
    return wrapped_->rms_norm(x_BTC, w_C, params);
  }
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override {
    return wrapped_->attention(q_BHTD, k_BGSD, v_BGSD, visible_TS, params, tap);
  }
  at::Tensor log_softmax(const at::Tensor& x) const override { return wrapped_->log_softmax(x); }
  at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const override {
    return wrapped_->rotate(x_BHTD, cos_11TD, sin_11TD);
  }
  at::Tensor gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const override {
    return wrapped_->gated(gate_BTF, up_BTF, activation);
  }
  at::Tensor soft_cap(const at::Tensor& x, double cap) const override { return wrapped_->soft_cap(x, cap); }
  bool row_invariant() const override { return wrapped_->row_invariant(); }
  bool place_invariant() const override { return wrapped_->place_invariant(); }
  std::vector<AlgorithmStretch> choices() const override { return wrapped_->choices(); }
  std::string unsupported(const AttentionNeeds& needs) const override { return wrapped_->unsupported(needs); }

 protected:
  const Ops& wrapped() const { return *wrapped_; }

 private:
  std::shared_ptr<const Ops> wrapped_;
};

}  // namespace kvdiv
