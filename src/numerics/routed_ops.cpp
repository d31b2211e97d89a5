#include "kvdiv/numerics/routed_ops.h"

#include "kvdiv/base/error.h"

namespace kvdiv {

std::vector<Operation> OperationSet::members() const {
  std::vector<Operation> out;
  for (const auto& [operation, name] : EnumNames<Operation>::values)
    if (contains(operation)) out.push_back(operation);
  return out;
}

Operation operation_of_matrix(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Operation>, 9> endings{{{"q_proj.weight", Operation::qkv},
                                                                           {"k_proj.weight", Operation::qkv},
                                                                           {"v_proj.weight", Operation::qkv},
                                                                           {"o_proj.weight", Operation::o},
                                                                           {"gate_proj.weight", Operation::gate_up},
                                                                           {"up_proj.weight", Operation::gate_up},
                                                                           {"down_proj.weight", Operation::down},
                                                                           {"embed_tokens.weight", Operation::head},
                                                                           {"lm_head.weight", Operation::head}}};
  for (const auto& [ending, operation] : endings)
    if (name.ends_with(ending)) return operation;
  fail(ErrorKind::internal, "no kind of operation is known for the matrix '{}'", name);
}

RoutedOps::RoutedOps(std::shared_ptr<const Ops> usual, std::shared_ptr<const Ops> fixed, OperationSet fixed_kinds)
    : usual_(std::move(usual)), fixed_(std::move(fixed)), fixed_kinds_(fixed_kinds) {}

void RoutedOps::assign(const at::Tensor& data, Operation kind) { kinds_[data.const_data_ptr()] = kind; }

const Ops& RoutedOps::of(const Matrix& w) const {
  const auto it = kinds_.find(w.data.const_data_ptr());
  if (it == kinds_.end()) fail(ErrorKind::internal, "a matrix of {} rows without a kind", w.n_rows);
  return of(it->second);
}

at::Tensor RoutedOps::rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const {
  return of(Operation::norms).rms_norm(x_BTC, w_C, params);
}

at::Tensor RoutedOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                                const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  return of(Operation::attention).attention(q_BHTD, k_BGSD, v_BGSD, visible_TS, params, tap);
}

at::Tensor RoutedOps::gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const {
  return of(Operation::activation).gated(gate_BTF, up_BTF, activation);
}

at::Tensor RoutedOps::soft_cap(const at::Tensor& x, double cap) const {
  return of(Operation::final_cap).soft_cap(x, cap);
}

std::string RoutedOps::unsupported(const AttentionNeeds& needs) const {
  const std::string reason = usual_->unsupported(needs);
  return reason.empty() ? fixed_->unsupported(needs) : reason;
}

}  // namespace kvdiv
