#include "kvdiv/numerics/ulp.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

namespace kvdiv {
namespace {

TEST(Ulp, NeighboursAreOneApart) {
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const double eps = dtype == at::kHalf ? 0x1p-10 : dtype == at::kBFloat16 ? 0x1p-7 : dtype == at::kFloat ? 0x1p-23 : 0x1p-52;
    const at::Tensor a = at::tensor({1.0, 1.0, -1.0, 0.0, 2.0}, at::kDouble).to(dtype);
    const at::Tensor b = at::tensor({1.0 + eps, 1.0 + 3 * eps, -1.0 - eps, -0.0, 2.0 - eps}, at::kDouble).to(dtype);
    EXPECT_EQ(ulp_distances(a, b), (std::vector<double>{1, 3, 1, 0, 1})) << dtype;
    EXPECT_EQ(ulp_distances(b, a), ulp_distances(a, b));
  }
}

TEST(Ulp, AcrossZeroItCountsTheSubnormals) {
  const double smallest = 0x1p-24;
  const at::Tensor a = at::tensor({smallest}, at::kDouble).to(at::kHalf), b = at::tensor({-smallest}, at::kDouble).to(at::kHalf);
  EXPECT_EQ(ulp_distances(a, b), (std::vector<double>{2}));
  const at::Tensor c = at::tensor({std::numeric_limits<double>::denorm_min()}, at::kDouble);
  EXPECT_EQ(ulp_distances(c, -c), (std::vector<double>{2}));
}

}  // namespace
}  // namespace kvdiv
