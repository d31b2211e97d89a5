#pragma once
// What `shapes` asks of a backend: each operation of a model along each axis.
#include <functional>
#include <string>
#include <vector>

#include "kvdiv/experiments/shapes.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

struct ShapeProbe {
  std::string operation;  ///< "linear q_proj, o_proj"
  std::string axis;
  std::string shape;  ///< of one row: "128 → 344"
  std::int64_t first = 1, last = 1;
  bool exhaustive = false;
  /// The largest distance from the row alone, in ULP; NaN never: bits that differ are at least one apart.
  std::function<double(std::int64_t n)> max_ulp;
};

/// Where operations are probed, and whether ATen's own functions are too.
struct ProbePlace {
  c10::Device device = c10::kCPU;
  bool with_aten = false;
};

/// The probes of a model's own sizes. `ops` must outlive them.
std::vector<ShapeProbe> shape_probes(const Ops& ops, const ModelConfig& config, DType dtype, const ShapesParams& params,
                                     const ProbePlace& place);

/// Those of the elementwise functions, along the length of a row.
std::vector<ShapeProbe> elementwise_probes(const Ops& ops, const ModelConfig& config, DType dtype,
                                           const ProbePlace& place);

/// [{operation, axis, shape, first, last, onset, max_ulp, n_probed, n_differing_probed, monotone}]
Json shape_rows(const std::vector<ShapeProbe>& probes);

/// Standard normal numbers of a shape, rounded to a dtype; the same in every run, others for each `index`.
at::Tensor random_operand(at::IntArrayRef shape, DType dtype, std::uint32_t index);

/// The largest distance in ULP; at least 1 where bits differ (−0 and +0 are 0 ULP apart).
double bit_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace kvdiv
