#include "invariant_ops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/tensor_storage.h"
#include "packing.h"
#include "rotate_half.h"

namespace kvdiv {
namespace {

/// Multiply-adds (or elements, for what is elementwise) that are worth a thread.
constexpr std::int64_t kWorkOfAThread = 32768;

std::int64_t grain(std::int64_t work_of_one) {
  return std::max<std::int64_t>(1, kWorkOfAThread / std::max<std::int64_t>(1, work_of_one));
}

/// Rows whose elements lie together; the rows themselves may be strided if there is one batch.
at::Tensor as_rows(const at::Tensor& x) {
  const at::Tensor flat = x.reshape({-1, x.size(-1)});
  return flat.stride(1) == 1 || flat.size(1) == 1 ? flat : flat.contiguous();
}

/// Memory for one call's panels, kept by each calling thread: fresh pages for every product would cost a tenth of it.
void* scratch(std::int64_t n_bytes) {
  thread_local std::vector<double> memory;
  constexpr std::size_t kAlignment = 64;
  const std::size_t needed = static_cast<std::size_t>(n_bytes) / sizeof(double) + kAlignment / sizeof(double) + 1;
  if (memory.size() < needed) memory.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

/// Calls f(pointers, n) over stretches of the elements of a tensor of one dtype.
template <class F>
void over_elements(std::int64_t n, F f) {
  at::parallel_for(0, n, kWorkOfAThread, [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
}

}  // namespace

at::Tensor InvariantOps::pack(const at::Tensor& w_NK) const { return pack_rows(w_NK, kPackedColumns); }

at::Tensor InvariantOps::unpack(const Matrix& w) const { return unpack_rows(w); }

at::Tensor InvariantOps::rows(const Matrix& w, const at::Tensor& ids_BT) const { return rows_of_packed(w, ids_BT); }

at::Tensor InvariantOps::linear(const at::Tensor& x_BTK, const Matrix& w) const {
  const Storage storage = storage_of(x_BTK);
  require_same_dtype(x_BTK, w.data);
  const at::Tensor x_MK = as_rows(x_BTK), weight = w.data.contiguous();
  LinearCall call;
  call.M = x_MK.size(0);
  call.K = x_MK.size(1);
  call.N = w.n_rows;
  std::vector<std::int64_t> shape = x_BTK.sizes().vec();
  shape.back() = w.n_rows;
  at::Tensor y = at::empty(shape, x_BTK.options());
  void* const panels = scratch(k_.panel_bytes(storage, call.M, call.K));
  call.panels = panels;
  call.weight = weight.const_data_ptr();
  call.y = y.mutable_data_ptr();
  const std::int64_t n_panels = (call.M + k_.panel_rows - 1) / k_.panel_rows;
  at::parallel_for(0, n_panels, grain(k_.panel_rows * call.K), [&](std::int64_t first, std::int64_t last) {
    k_.pack_rows(storage, x_MK.const_data_ptr(), x_MK.stride(0), call.M, call.K, first, last, panels);
  });
  at::parallel_for(0, weight.size(0), grain(call.M * call.K * kPackedColumns / 8),
                   [&](std::int64_t first, std::int64_t last) { k_.linear(storage, call, first, last); });
  return y;
}

at::Tensor InvariantOps::rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const {
  const Storage storage = storage_of(x_BTC);
  require_same_dtype(x_BTC, w_C);
  const at::Tensor x_MC = as_rows(x_BTC), weight = w_C.contiguous();
  at::Tensor y = at::empty(x_BTC.sizes(), x_BTC.options());
  const std::int64_t C = x_MC.size(1), row_bytes = C * x_BTC.element_size();
  const auto* const from = static_cast<const char*>(x_MC.const_data_ptr());
  auto* const to = static_cast<char*>(y.mutable_data_ptr());
  at::parallel_for(0, x_MC.size(0), grain(C), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t m = first; m < last; ++m)
      k_.rms_norm(storage, {from + m * x_MC.stride(0) * x_BTC.element_size(), weight.const_data_ptr(),
                            to + m * row_bytes, C, params.eps, params.offset, params.round_before_weight});
  });
  return y;
}

at::Tensor InvariantOps::log_softmax(const at::Tensor& x) const {
  const Storage storage = storage_of(x);
  const at::Tensor x_MV = as_rows(x);
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(wide_type(x.scalar_type())));
  const std::int64_t V = x_MV.size(1);
  const auto* const from = static_cast<const char*>(x_MV.const_data_ptr());
  auto* const to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, x_MV.size(0), grain(V), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t m = first; m < last; ++m)
      k_.log_softmax(storage, from + m * x_MV.stride(0) * x.element_size(), V, to + m * V * out.element_size());
  });
  return out;
}

at::Tensor InvariantOps::rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD,
                                const at::Tensor& sin_11TD) const {
  return rotate_half_form(x_BHTD, cos_11TD, sin_11TD);
}

at::Tensor InvariantOps::gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const {
  const Storage storage = storage_of(gate_BTF);
  require_same_dtype(gate_BTF, up_BTF);
  const at::Tensor gate = gate_BTF.contiguous(), up = up_BTF.contiguous();
  at::Tensor out = at::empty(gate.sizes(), gate.options());
  const std::int64_t size = gate.element_size();
  const auto kernel = activation == Activation::silu ? k_.silu_times : k_.gelu_times;
  over_elements(gate.numel(), [&](std::int64_t begin, std::int64_t n) {
    kernel(storage, static_cast<const char*>(gate.const_data_ptr()) + begin * size,
           static_cast<const char*>(up.const_data_ptr()) + begin * size, n,
           static_cast<char*>(out.mutable_data_ptr()) + begin * size);
  });
  return out;
}

at::Tensor InvariantOps::soft_cap(const at::Tensor& x_in, double cap) const {
  const at::Tensor x = x_in.contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options());
  over_elements(x.numel(), [&](std::int64_t begin, std::int64_t n) {
    k_.soft_cap(storage_of(x), static_cast<const char*>(x.const_data_ptr()) + begin * x.element_size(), cap, n,
                static_cast<char*>(out.mutable_data_ptr()) + begin * x.element_size());
  });
  return out;
}

std::string InvariantOps::unsupported(const AttentionNeeds&) const { return {}; }

}  // namespace kvdiv
