#pragma once
// A backend made of two: some kinds of operation are computed by a fixed one, all others by the usual one. Which kinds
// must be fixed for two arms to agree is what `kvdiv mitigate` searches for.
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// Kinds of operation, in the order of computation; all layers of a model together.
enum class Operation {
  rotary,      ///< tables of cosine and sine
  norms,       ///< every RMSNorm
  qkv,         ///< projections to queries, keys and values
  attention,   ///< scores, cap, softmax, mix
  o,           ///< output projection of attention
  gate_up,     ///< projections into the MLP
  activation,  ///< act(gate)·up
  down,        ///< projection out of the MLP
  head,        ///< logits
  final_cap,   ///< soft-cap of the logits
};
inline constexpr int kOperations = static_cast<int>(Operation::final_cap) + 1;
template <>
struct EnumNames<Operation> {
  static constexpr std::string_view what = "operation";
  static constexpr std::array<std::pair<Operation, std::string_view>, kOperations> values{
      {{Operation::rotary, "rotary"},
       {Operation::norms, "norms"},
       {Operation::qkv, "qkv"},
       {Operation::attention, "attention"},
       {Operation::o, "o"},
       {Operation::gate_up, "gate_up"},
       {Operation::activation, "activation"},
       {Operation::down, "down"},
       {Operation::head, "head"},
       {Operation::final_cap, "final_cap"}}};
};

/// A set of kinds: bit i is the i-th of the enum.
class OperationSet {
 public:
  constexpr OperationSet() = default;
  constexpr explicit OperationSet(std::uint32_t bits) : bits_(bits) {}
  constexpr bool contains(Operation o) const { return (bits_ & bit(o)) != 0; }
  constexpr OperationSet with(Operation o) const { return OperationSet(bits_ | bit(o)); }
  constexpr OperationSet without(Operation o) const { return OperationSet(bits_ & ~bit(o)); }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool operator==(const OperationSet&) const = default;
  std::vector<Operation> members() const;  ///< in the order of the enum

 private:
  static constexpr std::uint32_t bit(Operation o) { return std::uint32_t{1} << static_cast<int>(o); }
  std::uint32_t bits_ = 0;
};

/// The kind whose product reads a matrix of this name; a tied embedding is the head's. (The embedding itself copies
/// rows.)
Operation operation_of_matrix(std::string_view checkpoint_name);

/// Matrices must be packed by the backend that computes their kind, and named with assign(): a packed weight does not
/// show what it is for.
class RoutedOps final : public Ops {
 public:
  RoutedOps(std::shared_ptr<const Ops> usual, std::shared_ptr<const Ops> fixed, OperationSet fixed_kinds);

  /// `data`: a matrix as packed by the backend of its kind. It must outlive its use here.
  void assign(const at::Tensor& data, Operation kind);

  at::Tensor unpack(const Matrix& w) const override { return of(w).unpack(w); }
  at::Tensor rows(const Matrix& w, const at::Tensor& ids_BT) const override { return of(w).rows(w, ids_BT); }
  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override { return of(w).linear(x_BTK, w); }
  at::Tensor rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const override;
  at::Tensor attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                       const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const override;
  at::Tensor log_softmax(const at::Tensor& x) const override { return usual_->log_softmax(x); }
  at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const override {
    return of(Operation::rotary).rotate(x_BHTD, cos_11TD, sin_11TD);
  }
  at::Tensor gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const override;
  at::Tensor soft_cap(const at::Tensor& x, double cap) const override;
  std::string unsupported(const AttentionNeeds& needs) const override;

  /// Whether the rotary tables are to depend on no shape. Row-invariant it never is, whatever is fixed: a decoder leaves
  /// out rows of such a backend's last layer, and both arms would agree there because they do the same work.
  bool place_invariant() const override { return of(Operation::rotary).place_invariant(); }

 private:
  const Ops& of(Operation kind) const { return fixed_kinds_.contains(kind) ? *fixed_ : *usual_; }
  const Ops& of(const Matrix& w) const;

  std::shared_ptr<const Ops> usual_, fixed_;
  OperationSet fixed_kinds_;
  std::unordered_map<const void*, Operation> kinds_;  ///< by the address of the data; looked up, never walked
};

}  // namespace kvdiv
