#pragma once
// The Ops seam: the operations that sum, because the order of a sum is what kvdiv is about. A backend implements them;
// everything elementwise is ATen's and lives in the decoder. Shapes: legend in model/decoder.h.
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/numerics/tap.h"

namespace kvdiv {

struct NormParams {
  double eps = 1e-6;
  double offset = 0.0;              ///< gain = offset + weight
  bool round_before_weight = true;  ///< see NormCast
};

struct AttentionParams {
  double scale = 1.0;         ///< factor on q·k
  std::optional<double> cap;  ///< cap·tanh(score/cap) on the scaled scores, before the mask
};

/// What a model asks of attention; a backend that cannot express it says so.
struct AttentionNeeds {
  bool cap = false;
};

class Ops {
 public:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
  virtual ~Ops() = default;

  /// x_BTK · wᵀ_NK → [B,T,N], no bias.
  virtual at::Tensor linear(const at::Tensor& x_BTK, const at::Tensor& w_NK) const = 0;
  /// RMSNorm over the last dimension, accumulated in FP32 (in double for float64).
  virtual at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const = 0;
  /// softmax(cap(q·kᵀ·scale) where visible)·v → [B,T,H·D]. G key/value heads serve H = G·R query heads. `visible_TS` is
  /// boolean, true where the query sees the key; undefined: every key is seen.
  virtual at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                               const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const = 0;
  /// Empty if the backend can run a model with these needs, else the reason.
  virtual std::string unsupported(const AttentionNeeds& needs) const = 0;
};

/// Names of the backends, for messages and help.
std::vector<std::string> backend_names();

/// `backend`: torch; `attention`: eager or sdpa. Throws Error{usage} for an unknown name.
std::shared_ptr<const Ops> make_ops(const std::string& backend, const std::string& attention);

}  // namespace kvdiv
