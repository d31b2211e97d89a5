#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>

#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "kvdiv/base/random.h"
#include "trace_gqa.h"

namespace kvdiv {
namespace {

/// Rows of a key or value projection [G·D,C] for H/R KV heads; with `copies` for H, R of them equal.
at::Tensor regroup(const at::Tensor& w_NK, const ModelSizes& s, std::int64_t R, bool copies) {
  const std::int64_t own = s.n_heads / s.n_kv_heads, D = s.head_dim, C = w_NK.size(1);
  const auto repeat = [&](const at::Tensor& heads_GDC, std::int64_t n) {
    const auto G = heads_GDC.size(0);
    return heads_GDC.unsqueeze(1).expand({G, n, D, C}).reshape({G * n, D, C});
  };
  at::Tensor heads_GDC = w_NK.view({s.n_kv_heads, D, C});
  if (own % R == 0) {
    heads_GDC = repeat(heads_GDC, own / R);
  } else {
    // Through one copy a query head, so that any R has its means: those of whole KV heads where R is a multiple of their own.
    const at::Tensor grouped = repeat(heads_GDC, own).view({s.n_heads / R, R, D, C});
    heads_GDC = at::mean(grouped, at::IntArrayRef{1});
  }
  if (copies) heads_GDC = repeat(heads_GDC, R);
  return heads_GDC.reshape({-1, C}).contiguous();
}

/// n standard normals for a head: four a Philox block.
void fill_normals(double* out, std::int64_t n, std::array<std::uint32_t, 3> place, std::uint64_t seed) {
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t i = 0; i < n; i += 4) {
    const auto normals =
        standard_normals(philox4x32({static_cast<std::uint32_t>(i / 4), place[0], place[1], place[2]}, key));
    std::copy_n(normals.begin(), std::min<std::int64_t>(4, n - i), out + i);
  }
}

}  // namespace

std::vector<GqaVariant> gqa_variants(const ModelSizes& sizes) {
  const std::int64_t own = sizes.n_heads / sizes.n_kv_heads;
  std::vector<GqaVariant> out;
  for (const std::int64_t R : std::set<std::int64_t>{1, 2, 4, 8, own})
    if (sizes.n_heads % R == 0) out.push_back({R, R == own ? "as is" : own % R == 0 ? "repeated" : "pooled"});
  return out;
}

Decoder make_variant(Decoder& base, std::shared_ptr<const Ops> ops, std::int64_t R, bool copies) {
  ModelConfig config = base.config();
  const ModelSizes sizes = config.sizes;
  config.sizes.n_kv_heads = copies ? sizes.n_heads : sizes.n_heads / R;
  Decoder decoder(config, base.dtype(), std::move(ops), base.device());
  std::map<std::string, at::Tensor> by_name;
  for (const NamedWeight& w : base.weights()) by_name[w.name] = base.plain(w);
  for (const NamedWeight& w : decoder.weights()) {
    const bool is_kv = w.name.ends_with("k_proj.weight") || w.name.ends_with("v_proj.weight");
    decoder.put(w, is_kv ? regroup(by_name.at(w.name), sizes, R, copies) : by_name.at(w.name));
  }
  return decoder;
}

at::Tensor KvNoise::apply(const at::Tensor& x_BGTD, std::int64_t layer, bool values) const {
  const std::int64_t G = x_BGTD.size(1), n = x_BGTD.size(2) * x_BGTD.size(3);
  at::Tensor factor_BGTD = at::empty(x_BGTD.sizes(), at::TensorOptions().dtype(at::kDouble));
  auto* out = factor_BGTD.mutable_data_ptr<double>();
  const auto stream = static_cast<std::uint32_t>(2 * layer + (values ? 1 : 0));
  for (std::int64_t g = 0; g < G; ++g)
    fill_normals(out + g * n, n, {draw, stream, static_cast<std::uint32_t>(g)}, seed);
  for (std::int64_t i = 0; i < G * n; ++i) out[i] = 1.0 + size * out[i];
  return at::mul(x_BGTD, factor_BGTD.to(x_BGTD.device(), x_BGTD.scalar_type()));
}

HeadCorrelation correlate_heads(const at::Tensor& gram_HH, std::int64_t R) {
  const std::int64_t H = gram_HH.size(0);
  const at::Tensor gram = gram_HH.contiguous();
  const auto at = [&, g = gram.const_data_ptr<double>()](std::int64_t i, std::int64_t j) { return g[i * H + j]; };
  std::array<double, 2> sum{}, n{};  // pairs that share, pairs that do not
  for (std::int64_t i = 0; i < H; ++i)
    for (std::int64_t j = i + 1; j < H; ++j) {
      const double cosine = at(i, j) / std::sqrt(at(i, i) * at(j, j));
      if (!std::isfinite(cosine)) continue;  // a head without an error
      const std::size_t group = i / R == j / R ? 0 : 1;
      sum[group] += cosine;
      n[group] += 1.0;
    }
  HeadCorrelation out;
  if (n[0] > 0.0) out.shared = sum[0] / n[0];
  if (n[1] > 0.0) out.other = sum[1] / n[1];
  return out;
}

}  // namespace kvdiv
