#pragma once
// The Ops seam: the operations that sum, because the order of a sum is what kvdiv is about, and the elementwise functions
// whose bits a library may let depend on an element's place (exp, tanh). Sums and products of two numbers are ATen's and
// live in the decoder. Shapes: legend in model/decoder.h.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
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
  /// Position of the first key. A backend that sums in groups of keys counts them from position 0, so that a view that
  /// begins later (a sliding window's) is cut at the same keys.
  std::int64_t first_key = 0;
};

/// What a model asks of attention; a backend that cannot express it says so.
struct AttentionNeeds {
  bool cap = false;
};

/// A weight [N,K] as its backend keeps it: what pack() left. Its number of rows N goes with it, for padding may hide it.
struct Matrix {
  at::Tensor data;
  std::int64_t n_rows = 0;
};

/// Numbers of rows, from … to, for which a vendor's library computed the products with weights [n,k] by one algorithm.
struct AlgorithmStretch {
  std::int64_t n = 0, k = 0;
  std::string dtype;
  std::int64_t from_rows = 0, to_rows = 0, n_row_counts = 0;
  std::vector<std::pair<std::string, std::int64_t>> algorithm;  ///< what it is, in the library's own numbers
};

class Ops {
 public:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
  virtual ~Ops() = default;

  /// The layout in which the backend wants a weight w_NK, in the same dtype; done once, when a model is loaded.
  virtual at::Tensor pack(const at::Tensor& w_NK) const { return w_NK; }
  /// Back again: [N,K].
  virtual at::Tensor unpack(const Matrix& w) const { return w.data; }
  /// The rows `ids_BT` (int64) of a weight [V,C] → [B,T,C]: the embedding. Copies, never computes.
  virtual at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const = 0;

  /// x_BTK · wᵀ → [B,T,N], no bias.
  virtual at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const = 0;
  /// RMSNorm over the last dimension, accumulated in FP32 (in double for float64).
  virtual at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const = 0;
  /// softmax(cap(q·kᵀ·scale) where visible)·v → [B,T,H·D]. G key/value heads serve H = G·R query heads. `visible_TS` is
  /// boolean, true where the query sees the key; undefined: every key is seen.
  virtual at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                               const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const = 0;
  /// log softmax over the last dimension; result in FP32 (double for float64).
  virtual at::Tensor log_softmax(const at::Tensor& x) const = 0;

  /// x·cos + rotate_half(x)·sin, each product rounded to the compute dtype, then the sum: "rotate half" rotary embedding.
  virtual at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const = 0;
  /// act(gate)·up, rounded to the compute dtype after the activation and after the product.
  virtual at::Tensor gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const = 0;
  /// cap·tanh(x/cap), rounded to the compute dtype after each of the three.
  virtual at::Tensor soft_cap(const at::Tensor& x, double cap) const = 0;

  /// Whether a row's bits are promised not to depend on how many rows are computed with it. The decoder then leaves out
  /// rows that nobody reads.
  virtual bool row_invariant() const { return false; }
  /// Whether exp, tanh and the like are promised not to depend on an element's place. The decoder's rotary tables are then
  /// not ATen's either.
  virtual bool place_invariant() const { return row_invariant(); }
  /// What the backend chose on the way, for the report; empty if it chooses nothing that it knows of.
  virtual std::vector<AlgorithmStretch> choices() const { return {}; }
  /// Empty if the backend can run a model with these needs, else the reason.
  virtual std::string unsupported(const AttentionNeeds& needs) const = 0;
};

/// Names of the backends, for messages and help.
std::vector<std::string> backend_names();

/// Throws Error{usage} if no device has a backend of this name, or not with this kind of attention.
void require_backend(const std::string& backend, const std::string& attention);

/// `backend`: torch, invariant, …; `attention`: eager or sdpa. Throws Error{usage} for an unknown name, and for a backend
/// that the device does not have.
std::shared_ptr<const Ops> make_ops(const std::string& backend, const std::string& attention,
                                    c10::Device device = c10::kCPU);

}  // namespace kvdiv
