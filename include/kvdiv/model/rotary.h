#pragma once
// Rotary position embedding, "rotate half" form, with the reference's own sequence of operations: angles in FP32 (in double
// for float64), cosine and sine rounded once to the compute dtype.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "kvdiv/base/enums.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

struct RotaryTable {
  at::Tensor cos_11TD, sin_11TD;  ///< compute dtype
};

/// reference: ATen's functions in the reference's shapes, bit for bit. shape_independent: computed in double one by one and
/// rounded once, so that a position's row is the same in every call and on every CPU.
enum class RotaryTables { reference, shape_independent };

class Rotary {
 public:
  Rotary(const ModelConfig& config, DType dtype, RotaryTables tables, c10::Device device);
  /// For positions first … first + n − 1. Computed anew for each call in this shape: a vectorised cosine may give other
  /// bits at another place of a longer array, and the reference has it in this shape.
  RotaryTable at_positions(std::int64_t first, std::int64_t n) const;

 private:
  RotaryTable one_by_one(std::int64_t first, std::int64_t n) const;

  at::Tensor inverse_frequencies_;  ///< [D/2], FP32 or double; on the CPU if computed one by one
  c10::ScalarType compute_;
  RotaryTables tables_;
  c10::Device device_;
  /// On a GPU the shape-independent rows of every position of the model, so that a step waits for no upload.
  std::optional<RotaryTable> all_positions_;
};

}  // namespace kvdiv
