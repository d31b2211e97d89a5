#pragma once
// Distances in units in the last place: how many numbers of the dtype lie between two.
#include <ATen/core/Tensor.h>

#include <vector>

namespace kvdiv {

/// |a − b| in ULP, element by element; both of one floating dtype and shape, on any device. −0 and +0 are 0 apart. A NaN is
/// as far away as its bits say.
std::vector<double> ulp_distances(const at::Tensor& a, const at::Tensor& b);

}  // namespace kvdiv
