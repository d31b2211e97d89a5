#include "rotate_half.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

namespace kvdiv {

at::Tensor rotate_half_form(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) {
  const std::int64_t half = x_BHTD.size(-1) / 2;
  const at::Tensor rotated =
      at::cat({x_BHTD.narrow(-1, half, x_BHTD.size(-1) - half).neg(), x_BHTD.narrow(-1, 0, half)}, -1);
  return x_BHTD * cos_11TD + rotated * sin_11TD;
}

}  // namespace kvdiv
