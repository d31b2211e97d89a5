#include "order_ops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <numbers>

#include "order_storage.h"
#include "packing.h"
#include "rotate_half.h"

namespace kvdiv {
namespace {

constexpr auto kTile = static_cast<std::int64_t>(kTileColumns);

/// Rows of the last dimension: 1 for a vector.
std::int64_t n_rows(const at::Tensor& x) { return x.numel() / x.size(-1); }

double activated(double x, Activation activation) {
  if (activation == Activation::silu) return x / (1.0 + std::exp(-x));
  // 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))): Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
  const double inner = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

/// A row of rms_norm. The gain is in the compute dtype where the normalised row is rounded before it, else wide.
template <class S>
void normalise(std::span<const Wide<S>> x, const S* w, const NormParams& params, const ReductionSpec& spec, S* out) {
  using W = Wide<S>;
  const W mean_square = wide_dot<W>(x, x, spec) / static_cast<W>(x.size());
  const W scale = W{1} / std::sqrt(mean_square + static_cast<W>(params.eps));
  const auto offset = static_cast<W>(params.offset);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const W normed = x[i] * scale;
    const W gain = params.offset == 0.0 ? static_cast<W>(w[i]) : static_cast<W>(w[i]) + offset;
    out[i] = params.round_before_weight
                 ? static_cast<S>(static_cast<W>(static_cast<S>(gain)) * static_cast<W>(static_cast<S>(normed)))
                 : static_cast<S>(normed * gain);
  }
}

}  // namespace

at::Tensor OrderOps::pack(const at::Tensor& w_NK) const { return pack_rows(w_NK, kTile); }

at::Tensor OrderOps::unpack(const Matrix& w) const { return unpack_rows(w); }

at::Tensor OrderOps::rows(const Matrix& w, const at::Tensor& ids_BT) const { return rows_of_packed(w, ids_BT); }

at::Tensor OrderOps::linear(const at::Tensor& x_BTK, const Matrix& w) const {
  const std::int64_t T = n_rows(x_BTK), K = w.data.size(1), n_tiles = w.data.size(0);
  const ReductionSpec& spec = reductions_.of(T);
  const at::Tensor x = x_BTK.contiguous(), tiles = w.data.contiguous();
  std::vector<std::int64_t> shape = x_BTK.sizes().vec();
  shape.back() = w.n_rows;
  at::Tensor out_BTN = at::empty(shape, x.options());
  with_storage(x.scalar_type(), [&](auto element) {
    using S = decltype(element);
    std::vector<Wide<S>> rows(static_cast<std::size_t>(T * K));
    widen(x.const_data_ptr<S>(), rows.size(), rows.data());
    S* out = out_BTN.mutable_data_ptr<S>();
    const S* packed = tiles.const_data_ptr<S>();
    at::parallel_for(0, n_tiles, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<Wide<S>> tile(static_cast<std::size_t>(K * kTile)), sums(static_cast<std::size_t>(T * kTile));
      for (std::int64_t i = begin; i < end; ++i) {
        widen(packed + i * K * kTile, tile.size(), tile.data());
        const std::int64_t n = std::min(kTile, w.n_rows - i * kTile);
        const auto terms = static_cast<std::size_t>(K);
        ordered_tile({rows.data(), tile.data(), sums.data(), static_cast<std::size_t>(T), terms, terms}, spec);
        for (std::int64_t t = 0; t < T; ++t)
          narrow(sums.data() + t * kTile, static_cast<std::size_t>(n), out + t * w.n_rows + i * kTile);
      }
    });
  });
  return out_BTN;
}

at::Tensor OrderOps::rms_norm(const at::Tensor& x_BTC, const at::Tensor& w_C, const NormParams& params) const {
  const std::int64_t T = n_rows(x_BTC);
  const ReductionSpec& spec = reductions_.of(T);
  const at::Tensor x = x_BTC.contiguous(), weight = w_C.contiguous();
  at::Tensor out = at::empty_like(x);
  with_storage(x.scalar_type(), [&](auto element) {
    using S = decltype(element);
    const auto C = static_cast<std::size_t>(x.size(-1));
    std::vector<Wide<S>> row(C);
    for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
      widen(x.const_data_ptr<S>() + t * C, C, row.data());
      normalise<S>(row, weight.const_data_ptr<S>(), params, spec, out.mutable_data_ptr<S>() + t * C);
    }
  });
  return out;
}

at::Tensor OrderOps::log_softmax(const at::Tensor& x) const {
  const std::int64_t T = n_rows(x);
  const ReductionSpec& spec = reductions_.of(T);
  const at::Tensor logits = x.contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  with_storage(x.scalar_type(), [&](auto element) {
    using S = decltype(element);
    using W = Wide<S>;
    const auto V = static_cast<std::size_t>(x.size(-1));
    std::vector<W> row(V), e(V);
    for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
      widen(logits.const_data_ptr<S>() + t * V, V, row.data());
      e = row;
      const auto log_sum = static_cast<W>(std::log(static_cast<double>(exponentials<W>(e, spec))));
      W largest = row.front();
      for (const W v : row)
        if (!(v <= largest)) largest = v;
      for (std::size_t i = 0; i < V; ++i) out.mutable_data_ptr<W>()[t * V + i] = (row[i] - largest) - log_sum;
    }
  });
  return out;
}

at::Tensor OrderOps::rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const {
  return rotate_half_form(x_BHTD, cos_11TD, sin_11TD);
}

at::Tensor OrderOps::gated(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, Activation activation) const {
  const at::Tensor gate = gate_BTF.contiguous(), up = up_BTF.contiguous();
  at::Tensor out = at::empty_like(gate);
  with_storage(gate.scalar_type(), [&](auto element) {
    using S = decltype(element);
    using W = Wide<S>;
    const S *g = gate.const_data_ptr<S>(), *u = up.const_data_ptr<S>();
    S* o = out.mutable_data_ptr<S>();
    for (std::int64_t i = 0; i < gate.numel(); ++i) {
      const auto a = static_cast<S>(static_cast<W>(activated(static_cast<double>(g[i]), activation)));
      o[i] = static_cast<S>(static_cast<W>(a) * static_cast<W>(u[i]));
    }
  });
  return out;
}

at::Tensor OrderOps::soft_cap(const at::Tensor& x, double cap) const {
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in);
  with_storage(in.scalar_type(), [&](auto element) {
    using S = decltype(element);
    for (std::int64_t i = 0; i < in.numel(); ++i)
      out.mutable_data_ptr<S>()[i] = soft_capped<S>(in.const_data_ptr<S>()[i], static_cast<Wide<S>>(cap));
  });
  return out;
}

std::string OrderOps::unsupported(const AttentionNeeds&) const { return {}; }

}  // namespace kvdiv
