#include "invariant_ops.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include "kernels.h"
#include "kvdiv/numerics/tensor_storage.h"

namespace kvdiv::cuda {
namespace {

CUstream_st* stream() { return at::cuda::getCurrentCUDAStream().stream(); }

bool is_16_bit(const at::Tensor& x) { return x.element_size() == 2; }

bool is_aligned(const at::Tensor& x) { return reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0; }

bool is_aligned_stride(const at::Tensor& x, std::int64_t dim) {
  return x.size(dim) == 1 || x.stride(dim) * x.element_size() % 16 == 0;
}

/// Padded with zeros behind the last dimension, up to a multiple of `multiple`.
at::Tensor padded(const at::Tensor& x, std::int64_t multiple) {
  const std::int64_t missing = (multiple - x.size(-1) % multiple) % multiple;
  return missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
}

/// [M,K] with contiguous elements and aligned rows.
at::Tensor as_rows(const at::Tensor& x) {
  const at::Tensor flat = x.reshape({-1, x.size(-1)});
  const bool fits = (flat.stride(1) == 1 || flat.size(1) == 1) && is_aligned(flat) && is_aligned_stride(flat, 0);
  return fits ? flat : flat.clone(at::MemoryFormat::Contiguous);
}

/// What kernels ask of [1,heads,positions,D]; 16-bit heads are padded to a multiple of 8.
at::Tensor as_heads(const at::Tensor& x) {
  const at::Tensor wide = is_16_bit(x) ? padded(x, 8) : x;
  const bool fits = wide.stride(3) == 1 && is_aligned(wide) && is_aligned_stride(wide, 1) && is_aligned_stride(wide, 2);
  return fits ? wide : wide.clone(at::MemoryFormat::Contiguous);
}

/// Of a dimension of one element the stride is nobody's, and libtorch may say anything.
std::int64_t stride_of(const at::Tensor& x, std::int64_t dim) { return x.size(dim) == 1 ? 0 : x.stride(dim); }

HeadsView view_of(const at::Tensor& x_BHTD) {
  return {x_BHTD.const_data_ptr(), stride_of(x_BHTD, 1), stride_of(x_BHTD, 2)};
}

bool wants_stages(TapPoint tap) {
  return tap.tap != nullptr && (tap.tap->wants(Site::scores, tap.layer) || tap.tap->wants(Site::weights, tap.layer) ||
                                tap.tap->wants(Site::capped_scores, tap.layer));
}

}  // namespace

at::Tensor InvariantOps::pack(const at::Tensor& w_NK) const {
  return padded(w_NK, kTermsMultiple).narrow(1, 0, w_NK.size(1));
}

at::Tensor InvariantOps::unpack(const Matrix& w) const { return w.data.contiguous(); }

at::Tensor InvariantOps::rows(const Matrix& w, const at::Tensor& ids_BT) const { return at::embedding(w.data, ids_BT); }

at::Tensor InvariantOps::linear(const at::Tensor& x_BTK, const Matrix& w) const {
  const Storage storage = storage_of(x_BTK);
  require_same_dtype(x_BTK, w.data);
  const at::Tensor x_MK = as_rows(padded(x_BTK, kTermsMultiple));
  std::vector<std::int64_t> shape = x_BTK.sizes().vec();
  shape.back() = w.n_rows;
  at::Tensor y = at::empty(shape, x_BTK.options());
  LinearCall call{x_MK.const_data_ptr(), w.data.const_data_ptr(), y.mutable_data_ptr()};
  call.M = x_MK.size(0);
  call.N = w.n_rows;
  call.K = x_MK.size(1);
  call.x_stride = call.M == 1 ? call.K : x_MK.stride(0);
  cuda::linear(storage, call, stream());
  return y;
}

at::Tensor InvariantOps::rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const {
  require_same_dtype(x_BTC, w_C);
  const at::Tensor x_MC = as_rows(x_BTC), weight = w_C.contiguous();
  at::Tensor y = at::empty(x_BTC.sizes(), x_BTC.options());
  NormCall call{x_MC.const_data_ptr(), weight.const_data_ptr(), y.mutable_data_ptr()};
  call.M = x_MC.size(0);
  call.C = x_MC.size(1);
  call.x_stride = call.M == 1 ? call.C : x_MC.stride(0);
  call.eps = params.eps;
  call.offset = params.offset;
  call.round_before_weight = params.round_before_weight;
  cuda::rms_norm(storage_of(x_BTC), call, stream());
  return y;
}

at::Tensor InvariantOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                                   const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  const Storage storage = storage_of(q_BHTD);
  require_same_dtype(q_BHTD, k_BGSD);
  const at::Tensor q = as_heads(q_BHTD), k = as_heads(k_BGSD), v = as_heads(v_BGSD);
  const AttentionShape shape{q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), params.first_key};
  const bool stages = wants_stages(tap);
  at::Tensor scores = at::empty({1, shape.H, shape.T, shape.S}, q.options());
  const double cap = params.cap.value_or(0.0);
  attention_scores(
      storage, {view_of(q), view_of(k), scores.mutable_data_ptr(), shape, params.scale, stages ? 0.0 : cap}, stream());
  if (stages) {
    scores = tap(Site::scores, scores);
    if (params.cap) scores = tap(Site::capped_scores, soft_cap(scores, cap));
    scores = scores.contiguous();
  }
  const at::Tensor visible = visible_TS.defined() ? visible_TS.contiguous() : visible_TS;
  at::Tensor weights = stages ? at::empty(scores.sizes(), scores.options()) : scores;
  attention_softmax(storage,
                    {scores.const_data_ptr(), weights.mutable_data_ptr(),
                     visible.defined() ? visible.const_data_ptr<bool>() : nullptr, shape},
                    stream());
  if (stages) weights = tap(Site::weights, weights).contiguous();
  at::Tensor mix_BTHD = at::empty({1, shape.T, shape.H, shape.D}, q.options());
  const auto n_bytes = static_cast<std::int64_t>(mix_workspace_bytes(storage, shape));
  at::Tensor workspace = at::empty({n_bytes}, q.options().dtype(at::kByte));
  attention_mix(
      storage, {weights.const_data_ptr(), view_of(v), mix_BTHD.mutable_data_ptr(), workspace.mutable_data_ptr(), shape},
      stream());
  mix_BTHD = mix_BTHD.narrow(3, 0, q_BHTD.size(3));
  return tap(Site::mix, mix_BTHD.transpose(1, 2)).transpose(1, 2).reshape({1, shape.T, -1});
}

at::Tensor InvariantOps::log_softmax(const at::Tensor& x) const {
  const at::Tensor x_MV = as_rows(x);
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(wide_type(x.scalar_type())));
  const std::int64_t M = x_MV.size(0), V = x_MV.size(1);
  cuda::log_softmax(storage_of(x), {x_MV.const_data_ptr(), out.mutable_data_ptr(), M == 1 ? V : x_MV.stride(0), M, V},
                    stream());
  return out;
}

at::Tensor rotate_in_one(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) {
  require_same_dtype(x_BHTD, cos_11TD);
  const at::Tensor x = x_BHTD.stride(3) == 1 ? x_BHTD : x_BHTD.contiguous();
  const at::Tensor cos = cos_11TD.contiguous(), sin = sin_11TD.contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options());
  RotateCall call{x.const_data_ptr(), cos.const_data_ptr(), sin.const_data_ptr(), y.mutable_data_ptr()};
  call.head_stride = stride_of(x, 1);
  call.position_stride = stride_of(x, 2);
  call.H = x.size(1);
  call.T = x.size(2);
  call.D = x.size(3);
  cuda::rotate(storage_of(x), call, stream());
  return y;
}

at::Tensor InvariantOps::rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD,
                                const at::Tensor& sin_11TD) const {
  return rotate_in_one(x_BHTD, cos_11TD, sin_11TD);
}

at::Tensor InvariantOps::gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const {
  require_same_dtype(gate_BTF, up_BTF);
  const at::Tensor gate = as_rows(gate_BTF), up = as_rows(up_BTF);
  at::Tensor out = at::empty(gate_BTF.sizes(), gate.options());
  GatedCall call{gate.const_data_ptr(), up.const_data_ptr(), out.mutable_data_ptr()};
  call.M = gate.size(0);
  call.C = gate.size(1);
  call.gate_stride = call.M == 1 ? call.C : gate.stride(0);
  call.up_stride = call.M == 1 ? call.C : up.stride(0);
  call.kind = activation == Activation::silu ? GatedKind::silu : GatedKind::gelu_tanh;
  cuda::gated(storage_of(gate), call, stream());
  return out;
}

at::Tensor InvariantOps::soft_cap(const at::Tensor& x_in, double cap) const {
  const at::Tensor x = x_in.contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options());
  cuda::soft_cap(storage_of(x), {x.const_data_ptr(), out.mutable_data_ptr(), x.numel(), cap}, stream());
  return out;
}

}  // namespace kvdiv::cuda
