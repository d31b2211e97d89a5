#include "kvdiv/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include "kvdiv/model/dtype.h"

namespace kvdiv {

Rotary::Rotary(const ModelConfig& config, DType dtype) : compute_(scalar_type(dtype)) {
  const auto wide = dtype == DType::float64 ? at::kDouble : at::kFloat;
  const at::Tensor exponent = at::arange(0, config.sizes.head_dim, 2, at::TensorOptions().dtype(wide)) /
                              static_cast<double>(config.sizes.head_dim);
  inverse_frequencies_ = at::reciprocal(at::pow(config.rope_theta, exponent));
}

RotaryTable Rotary::at_positions(std::int64_t first, std::int64_t n) const {
  const at::Tensor positions =
      at::arange(first, first + n, at::TensorOptions().dtype(at::kLong)).unsqueeze(0).unsqueeze(-1);
  const at::Tensor angles = positions.to(inverse_frequencies_.scalar_type()) * inverse_frequencies_;
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
