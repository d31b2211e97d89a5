#pragma once
// What a run of a config holds in memory. Bytes, saturating: a config may name sizes whose product no 64 bits can count,
// and such a run must look too large, not small. No torch in here.
#include <cstdint>

#include "kvdiv/base/enums.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

struct MemoryNeed {
  std::uint64_t weights = 0;      ///< parameters in the compute dtype
  std::uint64_t cache = 0;        ///< ON's keys and values
  std::uint64_t activations = 0;  ///< the largest of one block over the whole prefix (OFF), attention scores included
  std::uint64_t logits = 0;       ///< a few rows of the vocabulary in FP64
  std::uint64_t total() const;
};

/// For sequences of up to `length` positions.
MemoryNeed memory_need(const ModelConfig& config, DType dtype, std::int64_t length);

/// Bytes that load_model will hold: parameters times the dtype's size.
std::uint64_t weight_bytes(const ModelConfig& config, DType dtype);

/// Bytes of the keys and values of `length` positions.
std::uint64_t cache_bytes(const ModelConfig& config, DType dtype, std::int64_t length);

}  // namespace kvdiv
