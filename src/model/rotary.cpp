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
at::Tensor each(const at::Tensor& x, F function) {
  at::Tensor values = x.to(at::kDouble).contiguous().clone();
  double* const data = values.mutable_data_ptr<double>();
  std::transform(data, data + values.numel(), data, function);
  return values.to(x.scalar_type());
}

}  // namespace

Rotary::Rotary(const ModelConfig& config, DType dtype, RotaryTables tables, c10::Device device)
    : compute_(scalar_type(dtype)), tables_(tables), device_(device) {
  const auto wide = dtype == DType::float64 ? at::kDouble : at::kFloat;
  if (tables_ == RotaryTables::shape_independent) {
    const at::Tensor pairs = at::arange(0, config.sizes.head_dim, 2, at::TensorOptions().dtype(at::kDouble));
    const auto head_dim = static_cast<double>(config.sizes.head_dim);
    inverse_frequencies_ =
        each(pairs, [&](double i) { return 1.0 / std::pow(config.rope_theta, i / head_dim); }).to(wide);
    if (device_.is_cpu()) return;
    const RotaryTable all = one_by_one(0, config.sizes.max_positions);
    all_positions_ = {all.cos_11TD.to(device_), all.sin_11TD.to(device_)};
    return;
  }
  // On the CPU on every device: the reference makes them there, and a GPU's pow may differ in the last bit.
  const at::Tensor exponent = at::arange(0, config.sizes.head_dim, 2, at::TensorOptions().dtype(wide)) /
                              static_cast<double>(config.sizes.head_dim);
  inverse_frequencies_ = at::reciprocal(at::pow(config.rope_theta, exponent)).to(device_);
}

namespace {

/// [1,T,D/2]
at::Tensor angles_of(std::int64_t first, std::int64_t n, const at::Tensor& inverse_frequencies) {
  const auto options = inverse_frequencies.options().dtype(at::kLong);
  const at::Tensor positions = at::arange(first, first + n, options).unsqueeze(0).unsqueeze(-1);
  return positions.to(inverse_frequencies.scalar_type()) * inverse_frequencies;
}

}  // namespace

RotaryTable Rotary::one_by_one(std::int64_t first, std::int64_t n) const {
  const at::Tensor angles = angles_of(first, n, inverse_frequencies_);
  const auto table = [&](double (*function)(double)) {
    const at::Tensor half = each(angles, function).to(compute_);
    return at::cat({half, half}, -1).unsqueeze(1);
  };
  return {table([](double a) { return std::cos(a); }), table([](double a) { return std::sin(a); })};
}

RotaryTable Rotary::at_positions(std::int64_t first, std::int64_t n) const {
  if (all_positions_ && first >= 0 && first + n <= all_positions_->cos_11TD.size(2))
    return {all_positions_->cos_11TD.narrow(2, first, n), all_positions_->sin_11TD.narrow(2, first, n)};
  if (tables_ == RotaryTables::shape_independent) {
    const RotaryTable table = one_by_one(first, n);
    return {table.cos_11TD.to(device_), table.sin_11TD.to(device_)};
  }
  const at::Tensor angles = angles_of(first, n, inverse_frequencies_);
  const at::Tensor both_halves = at::cat({angles, angles}, -1);
  return {both_halves.cos().to(compute_).unsqueeze(1), both_halves.sin().to(compute_).unsqueeze(1)};
}

}  // namespace kvdiv
