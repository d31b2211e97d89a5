// Elementwise functions: an element's bits must not depend on its place in a row, or on the row's length.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "kvdiv/model/dtype.h"
#include "shapes_probes.h"

namespace kvdiv {
namespace {

constexpr std::int64_t kLongestRow = 70;  // more than a vector of 64 half-precision numbers, and a rest
constexpr std::int64_t kScores = 11;      // fewer than a vector has lanes: what is behind them shares it
constexpr std::int64_t kTrials = 64;      // values, or rows of scores
constexpr std::uint32_t kOperand = 100;   // of random_operand

using Function = std::function<at::Tensor(const at::Tensor&)>;

/// The same value at every place of a row of n, against the value alone.
ShapeProbe places_probe(std::string operation, DType dtype, c10::Device device, Function function) {
  const at::Tensor values = random_operand({kTrials}, dtype, kOperand).to(device);
  ShapeProbe probe{std::move(operation), "length", "1", 1, kLongestRow, true, {}};
  probe.max_ulp = [values, function = std::move(function)](std::int64_t n) {
    double ulp = 0.0;
    for (std::int64_t i = 0; i < kTrials; ++i) {
      const at::Tensor value = values.narrow(0, i, 1);
      const at::Tensor row = function(value.expand({n}).contiguous()), alone = function(value.clone());
      ulp = std::max(ulp, bit_distance(row, alone.expand({n})));
    }
    return ulp;
  };
  return probe;
}

/// Scores with masked ones behind them, against the scores alone.
ShapeProbe softmax_probe(DType dtype, c10::Device device) {
  const at::Tensor scores = random_operand({kTrials, kScores}, dtype, kOperand + 1).to(device);
  const auto wide = dtype == DType::float64 ? at::kDouble : at::kFloat;
  ShapeProbe probe{"ATen softmax", "length", std::to_string(kScores), kScores, kLongestRow, true, {}};
  probe.max_ulp = [scores, wide](std::int64_t n) {
    double ulp = 0.0;
    for (std::int64_t i = 0; i < kTrials; ++i) {
      const at::Tensor alone = scores.select(0, i);
      const at::Tensor masked = at::constant_pad_nd(alone, {0, n - kScores}, -std::numeric_limits<double>::infinity());
      ulp = std::max(ulp,
                     bit_distance(at::softmax(masked, -1, wide).narrow(0, 0, kScores), at::softmax(alone, -1, wide)));
    }
    return ulp;
  };
  return probe;
}

}  // namespace

std::vector<ShapeProbe> elementwise_probes(const Ops& ops, const ModelConfig& config, DType dtype,
                                           const ProbePlace& place) {
  const c10::Device device = place.device;
  std::vector<ShapeProbe> out;
  const auto gated = [&ops](Activation activation) {
    return [&ops, activation](const at::Tensor& x) {
      const at::Tensor row = x.view({1, 1, -1});
      return ops.gated(row, at::ones_like(row), activation).view({-1});
    };
  };
  out.push_back(places_probe("gated silu", dtype, device, gated(Activation::silu)));
  out.push_back(places_probe("gated gelu", dtype, device, gated(Activation::gelu_tanh)));
  const double cap = config.traits.final_cap.value_or(config.traits.attention_cap.value_or(30.0));
  out.push_back(
      places_probe("soft_cap", dtype, device, [&ops, cap](const at::Tensor& x) { return ops.soft_cap(x, cap); }));
  if (!place.with_aten) return out;
  out.push_back(places_probe("ATen exp", dtype, device, [](const at::Tensor& x) { return at::exp(x); }));
  out.push_back(places_probe("ATen tanh", dtype, device, [](const at::Tensor& x) { return at::tanh(x); }));
  out.push_back(places_probe("ATen silu", dtype, device, [](const at::Tensor& x) { return at::silu(x); }));
  out.push_back(places_probe("ATen gelu", dtype, device, [](const at::Tensor& x) { return at::gelu(x, "tanh"); }));
  out.push_back(
      places_probe("ATen cos", dtype, device, [](const at::Tensor& x) { return at::cos(x); }));  // of the rotary tables
  out.push_back(places_probe("ATen sin", dtype, device, [](const at::Tensor& x) { return at::sin(x); }));
  out.push_back(softmax_probe(dtype, device));
  return out;
}

}  // namespace kvdiv
