#include "kvdiv/numerics/widened_ops.h"

#include <utility>

#include "kvdiv/numerics/forwarding_ops.h"

namespace kvdiv {
namespace {

at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

/// A packed weight has the same layout in every dtype.
Matrix widened(const Matrix& w) { return {widened(w.data), w.n_rows}; }

class Float32Attention final : public ForwardingOps {
 public:
  Float32Attention(std::shared_ptr<const Ops> wrapped, std::shared_ptr<const Ops> wide)
      : ForwardingOps(std::move(wrapped)), wide_(std::move(wide)) {}
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override {
    return wide_->attention(widened(q_BHTD), widened(k_BGSD), widened(v_BGSD), visible_TS, params, tap)
        .to(q_BHTD.scalar_type());
  }

 private:
  std::shared_ptr<const Ops> wide_;
};

/// Rounds what attention stores between its products, and keeps it in FP32 for the next one. The tap of the caller sees
/// the rounded values in their own dtype.
class RoundingTap final : public Tap {
 public:
  RoundingTap(c10::ScalarType stored, TapPoint next) : stored_(stored), next_(next) {}
  bool wants(Site site, std::int64_t) const override {
    return site == Site::scores || site == Site::capped_scores || site == Site::weights || site == Site::mix;
  }
  at::Tensor visit(Site site, std::int64_t, const at::Tensor& tensor) override {
    return widened(next_(site, tensor.to(stored_)));
  }

 private:
  c10::ScalarType stored_;
  TapPoint next_;
};

class Float32Accumulation final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override {
    return wrapped().linear(widened(x_BTK), widened(w)).to(x_BTK.scalar_type());
  }
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override {
    RoundingTap rounding(q_BHTD.scalar_type(), tap);
    return wrapped()
        .attention(widened(q_BHTD), widened(k_BGSD), widened(v_BGSD), visible_TS, params, {&rounding, tap.layer})
        .to(q_BHTD.scalar_type());
  }
};

class Float32Arithmetic final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override {
    return widened(wrapped().rows(w, ids_BT));
  }
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override {
    return wrapped().linear(x_BTK, widened(w));
  }
  at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const override {
    return wrapped().rms_norm(x_BTC, widened(w_C), params);
  }
};

}  // namespace

std::shared_ptr<const Ops> float32_attention(std::shared_ptr<const Ops> wrapped, std::shared_ptr<const Ops> wide) {
  return std::make_shared<Float32Attention>(std::move(wrapped), std::move(wide));
}

std::shared_ptr<const Ops> float32_accumulation(std::shared_ptr<const Ops> wrapped) {
  return std::make_shared<Float32Accumulation>(std::move(wrapped));
}

std::shared_ptr<const Ops> float32_arithmetic(std::shared_ptr<const Ops> wrapped) {
  return std::make_shared<Float32Arithmetic>(std::move(wrapped));
}

}  // namespace kvdiv
