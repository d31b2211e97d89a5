#pragma once
// From a checkpoint to a decoder: two lists of names compared, then each tensor cast once.
#include <cstdint>
#include <memory>

#include "kvdiv/base/fields.h"
#include "kvdiv/base/warnings.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/model/decoder.h"
#include "kvdiv/model/memory_need.h"

namespace kvdiv {

/// What casting to the compute dtype did to the checkpoint's numbers.
struct CastCounts {
  std::int64_t overflow = 0;         ///< finite on disk, infinite after the cast
  std::int64_t flushed_to_zero = 0;  ///< non-zero on disk, zero after the cast
};

template <class V>
void describe_fields(V& v, CastCounts& c) {
  v.field("overflow", c.overflow);
  v.field("flushed_to_zero", c.flushed_to_zero);
}

struct LoadedModel {
  Decoder decoder;
  CastCounts cast;
};

/// Checks names, shapes and dtypes of the whole checkpoint before a byte of it is cast. Throws Error{unreadable} that names
/// the tensors that are missing, left over, or wrong.
void check_checkpoint(const Checkpoint& checkpoint, const ModelConfig& config);

/// Loads from the original file, always: never from another dtype's copy. Peak memory is the weights in the compute dtype
/// plus one tensor; pages of the file are given back as they are read. On a GPU the bytes go there as they are on disk and
/// are cast there.
LoadedModel load_model(const Checkpoint& checkpoint, const ModelConfig& config, DType dtype,
                       std::shared_ptr<const Ops> ops, Warnings& warnings, c10::Device device = c10::kCPU);

}  // namespace kvdiv
