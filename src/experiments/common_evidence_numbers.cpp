// Questions about the numbers themselves: what a cache holds, and what a norm does.
#include <ATen/ops/add.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "common_evidence.h"
#include "kvdiv/base/error.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/model/dtype.h"

namespace kvdiv {
namespace {

/// Explicit mantissa bits that a number needs: 52 less its trailing zeros; 0 of a power of two.
int mantissa_bits(double x) {
  const auto mantissa = std::bit_cast<std::uint64_t>(x) & ((std::uint64_t{1} << 52) - 1);
  return mantissa == 0 ? 0 : 52 - std::countr_zero(mantissa);
}

int largest_mantissa_bits(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous();
  const double* at = flat.const_data_ptr<double>();
  int bits = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) bits = std::max(bits, mantissa_bits(at[i]));
  return bits;
}

at::Tensor at_position(const at::Tensor& x_BGSD, std::int64_t s) { return x_BGSD.narrow(2, s, 1); }

/// K and V of both arms over the positions that both hold, in [1,G,S,D].
struct StoredPair {
  at::Tensor k_on, v_on, k_off, v_off;
  std::int64_t first = 0, S = 0;

  bool differs_at(std::int64_t s) const {
    return relative_difference(at_position(k_on, s), at_position(k_off, s)) > kFp64Agreement ||
           relative_difference(at_position(v_on, s), at_position(v_off, s)) > kFp64Agreement;
  }
  bool on_copies(std::int64_t s, std::int64_t source) const {
    return relative_difference(at_position(k_on, s), at_position(k_off, source)) <= kFp64Agreement &&
           relative_difference(at_position(v_on, s), at_position(v_off, source)) <= kFp64Agreement;
  }
};

/// Each head of `on` sought among `off`'s; empty if one is not there, or if the order is OFF's own.
std::vector<std::int64_t> permuted_heads(const StoredPair& p) {
  const std::int64_t G = p.k_on.size(1);
  std::vector<std::int64_t> heads;
  for (std::int64_t g = 0; g < G; ++g)
    for (std::int64_t other = 0; other < G; ++other)
      if (relative_difference(p.k_on.narrow(1, g, 1), p.k_off.narrow(1, other, 1)) <= kFp64Agreement &&
          relative_difference(p.v_on.narrow(1, g, 1), p.v_off.narrow(1, other, 1)) <= kFp64Agreement) {
        heads.push_back(other);
        break;
      }
  bool is_identity = true;
  for (std::size_t g = 0; g < heads.size(); ++g) is_identity = is_identity && heads[g] == static_cast<std::int64_t>(g);
  return std::ssize(heads) == G && !is_identity ? heads : std::vector<std::int64_t>{};
}

/// Sums over (on − off)/off of a row's elements, in their order: noise has no mean, and neighbours that know nothing of
/// each other.
struct ElementTally {
  double sum = 0.0, squares = 0.0, products = 0.0;
  std::int64_t n = 0;

  void add(const at::Tensor& on, const at::Tensor& off) {
    const at::Tensor x = on.contiguous(), y = off.contiguous();
    const double *a = x.const_data_ptr<double>(), *b = y.const_data_ptr<double>();
    double previous = 0.0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double delta = b[i] == 0.0 ? 0.0 : (a[i] - b[i]) / b[i];
      sum += delta, squares += delta * delta, products += delta * previous, ++n;
      previous = delta;
    }
  }
};

void tell_numbers(const StoredPair& p, StoredDifference& out) {
  ElementTally tally;
  for (const std::int64_t position : out.positions) {
    const std::int64_t s = position - p.first;
    for (const auto& [on, off] : {std::pair(p.k_on, p.k_off), std::pair(p.v_on, p.v_off)}) {
      tally.add(at_position(on, s), at_position(off, s));
      out.bits_on = std::max(out.bits_on, largest_mantissa_bits(at_position(on, s)));
      out.bits_off = std::max(out.bits_off, largest_mantissa_bits(at_position(off, s)));
    }
  }
  out.n_elements = tally.n;
  if (tally.n == 0) return;
  out.mean = tally.sum / static_cast<double>(tally.n);
  out.rms = std::sqrt(tally.squares / static_cast<double>(tally.n));
  out.neighbours = tally.squares > 0.0 ? tally.products / tally.squares : 0.0;
}

/// An RMSNorm: where its input and output are seen, and its weight's name.
struct NormPlace {
  Site input, output;
  std::int64_t input_layer, layer;
  std::string weight;
};

std::vector<NormPlace> norm_places(const ModelConfig& config) {
  std::vector<NormPlace> out;
  const std::int64_t L = config.sizes.n_layers;
  for (std::int64_t l = 0; l < L; ++l) {
    const std::string at = fmt::format("model.layers.{}.", l);
    out.push_back({l == 0 ? Site::embedding : Site::block, Site::attention_norm, std::max<std::int64_t>(0, l - 1), l,
                   at + "input_layernorm.weight"});
    if (config.traits.sandwich_norms) {
      out.push_back({Site::attention_out, Site::attention_post_norm, l, l, at + "post_attention_layernorm.weight"});
      out.push_back({Site::attention_residual, Site::mlp_norm, l, l, at + "pre_feedforward_layernorm.weight"});
      out.push_back({Site::mlp_out, Site::mlp_post_norm, l, l, at + "post_feedforward_layernorm.weight"});
    } else {
      out.push_back({Site::attention_residual, Site::mlp_norm, l, l, at + "post_attention_layernorm.weight"});
    }
  }
  out.push_back({Site::block, Site::final_norm, L - 1, L, "model.norm.weight"});
  return out;
}

double dot_of(const at::Tensor& a, const at::Tensor& b) {
  return at::dot(a.reshape({-1}), b.reshape({-1})).item().toDouble();
}

/// ε of y = gain·x/√(mean x² + ε); none if y is no multiple of gain·x.
std::optional<double> acting_epsilon(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gain) {
  const at::Tensor gx = at::mul(gain, x);
  const double r = dot_of(y, gx) / dot_of(gx, gx);
  if (!(r > 0.0) || relative_difference(y, at::mul(gx, r)) > kFp64Agreement) return std::nullopt;
  return 1.0 / (r * r) - dot_of(x, x) / static_cast<double>(x.numel());
}

/// What RMSNorm gives in a compute dtype if it rounds before the weight, or after it.
at::Tensor norm_with_order(const at::Tensor& x, const at::Tensor& w, const ModelConfig& config, at::ScalarType compute,
                           bool round_first) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor variance = at::mean(at::pow(wide, 2), at::IntArrayRef{-1}, /*keepdim=*/true);
  const at::Tensor normed = at::mul(wide, at::rsqrt(at::add(variance, config.rms_norm_eps)));
  const double offset = config.traits.norm_offset;
  const auto gain = [&](at::ScalarType dtype) {
    const at::Tensor own = w.to(dtype);
    return offset == 0.0 ? own : at::add(own, offset);
  };
  const at::Tensor y = round_first ? at::mul(gain(compute), normed.to(compute)) : at::mul(normed, gain(at::kFloat));
  return y.to(compute).to(at::kDouble);
}

}  // namespace

std::optional<StoredDifference> stored_difference(const ObservedStep& step, std::int64_t layer) {
  for (const ArmStep* arm : {&step.on, &step.off})
    if (!arm->has(Site::keys, layer) || !arm->has(Site::values, layer)) return std::nullopt;
  const at::Tensor k_on = step.on.newest(Site::keys, layer), k_off = step.off.newest(Site::keys, layer);
  const std::int64_t S = std::min(k_on.size(2), k_off.size(2));
  const StoredPair p{last_of(k_on, 2, S),    last_of(step.on.newest(Site::values, layer), 2, S),
                     last_of(k_off, 2, S),   last_of(step.off.newest(Site::values, layer), 2, S),
                     step.n_positions() - S, S};
  StoredDifference out;
  out.layer = layer;
  out.n_compared = S;
  for (std::int64_t s = 0; s < S; ++s)
    if (p.differs_at(s)) out.positions.push_back(p.first + s);
  out.heads = permuted_heads(p);
  for (const std::int64_t position : out.positions)
    for (std::int64_t s = 0; s < S; ++s)
      if (p.first + s != position && p.on_copies(position - p.first, s)) out.copy_of[position] = p.first + s;
  tell_numbers(p, out);
  return out;
}

NormEpsilon norm_epsilon(const ObservedStep& step, const FirstDifference& first, const ModelConfig& config,
                         const WeightOf& weight) {
  for (const NormPlace& p : norm_places(config)) {
    if (p.output != first.site || p.layer != first.layer) continue;
    const at::Tensor gain = at::add(weight(p.weight), config.traits.norm_offset);
    const auto of = [&](const ArmStep& arm) {
      return acting_epsilon(arm.newest(p.input, p.input_layer), arm.newest(p.output, p.layer), gain);
    };
    return {of(step.on), of(step.off)};
  }
  return {};
}

NormOrder norm_order(const ObservedStep& step, const ModelConfig& config, DType dtype, const WeightOf& weight) {
  const bool is_first = config.traits.norm_cast == NormCast::before_weight;
  NormOrder out;
  double on = 0.0, off = 0.0;
  for (const NormPlace& p : norm_places(config)) {
    const at::Tensor w = weight(p.weight);
    const auto tally = [&](const ArmStep& arm, double& other_order) {
      if (!arm.has(p.input, p.input_layer) || !arm.has(p.output, p.layer)) return;
      const at::Tensor x = arm.newest(p.input, p.input_layer), y = arm.newest(p.output, p.layer);
      const at::Tensor own = norm_with_order(x, w, config, scalar_type(dtype), is_first).contiguous();
      const at::Tensor other = norm_with_order(x, w, config, scalar_type(dtype), !is_first).contiguous();
      const at::Tensor seen = y.contiguous();
      for (std::int64_t i = 0; i < seen.numel(); ++i) {
        const double a = own.const_data_ptr<double>()[i], b = other.const_data_ptr<double>()[i];
        if (a == b) continue;
        if (&arm == &step.on) ++out.n;
        other_order += seen.const_data_ptr<double>()[i] == b;
      }
    };
    tally(step.on, on);
    tally(step.off, off);
  }
  if (out.n > 0) out.on = on / static_cast<double>(out.n), out.off = off / static_cast<double>(out.n);
  return out;
}

}  // namespace kvdiv
