#include "kvdiv/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include <algorithm>
#include <cmath>

#include "kvdiv/model/dtype.h"

namespace kvdiv {
namespace {

/// Each element by itself, by the C library in double, rounded to the tensor's dtype.
template <class F>
at::Tensor one_by_one(const at::Tensor& x, F function) {
  at::Tensor values = x.to(at::kDouble).contiguous().clone();
  double* const data = values.mutable_data_ptr<double>();
  std::transform(data, data + values.numel(), data, function);
  return values.to(x.scalar_type());
}

}  // namespace

Rotary::Rotary(const ModelConfig& config, DType dtype, RotaryTables tables)
    : compute_(scalar_type(dtype)), tables_(tables) {
  const auto wide = dtype == DType::float64 ? at::kDouble : at::kFloat;
  if (tables_ == RotaryTables::shape_independent) {
    const at::Tensor pairs = at::arange(0, config.sizes.head_dim, 2, at::TensorOptions().dtype(at::kDouble));
    const auto head_dim = static_cast<double>(config.sizes.head_dim);
    inverse_frequencies_ =
        one_by_one(pairs, [&](double i) { return 1.0 / std::pow(config.rope_theta, i / head_dim); }).to(wide);
    return;
  }
  const at::Tensor exponent = at::arange(0, config.sizes.head_dim, 2, at::TensorOptions().dtype(wide)) /
                              static_cast<double>(config.sizes.head_dim);
  inverse_frequencies_ = at::reciprocal(at::pow(config.rope_theta, exponent));
}

RotaryTable Rotary::at_positions(std::int64_t first, std::int64_t n) const {
  const at::Tensor positions =
      at::arange(first, first + n, at::TensorOptions().dtype(at::kLong)).unsqueeze(0).unsqueeze(-1);
  const at::Tensor angles = positions.to(inverse_frequencies_.scalar_type()) * inverse_frequencies_;
  if (tables_ == RotaryTables::shape_independent) {
    const auto table = [&](double (*function)(double)) {
      const at::Tensor half = one_by_one(angles, function).to(compute_);
      return at::cat({half, half}, -1).unsqueeze(1);
    };
    return {table([](double a) { return std::cos(a); }), table([](double a) { return std::sin(a); })};
  }
  const at::Tensor both_halves = at::cat({angles, angles}, -1);
  return {both_halves.cos().to(compute_).unsqueeze(1), both_halves.sin().to(compute_).unsqueeze(1)};
}

at::Tensor rotate(const at::Tensor& x_BHTD, const RotaryTable& table) {
  const std::int64_t half = x_BHTD.size(-1) / 2;
  const at::Tensor rotated =
      at::cat({x_BHTD.narrow(-1, half, x_BHTD.size(-1) - half).neg(), x_BHTD.narrow(-1, 0, half)}, -1);
  return x_BHTD * table.cos_11TD + rotated * table.sin_11TD;
}

}  // namespace kvdiv
