#pragma once
// What a run needs, and what the machine has: a run that cannot fit is refused before it decodes.
#include <c10/core/Device.h>

#include <cstdint>

#include "kvdiv/base/enums.h"
#include "kvdiv/model/config.h"

namespace kvdiv {

struct MemoryNeed {
  std::uint64_t weights = 0;      ///< parameters in the compute dtype
  std::uint64_t cache = 0;        ///< ON's keys and values
  std::uint64_t activations = 0;  ///< the largest of one block over the whole prefix (OFF), attention scores included
  std::uint64_t logits = 0;       ///< a few rows of the vocabulary in FP64
  std::uint64_t total() const { return weights + cache + activations + logits; }
};

/// For sequences of up to `length` positions.
MemoryNeed memory_need(const ModelConfig& config, DType dtype, std::int64_t length);

/// Bytes that can still be allocated: the least of MemAvailable, the cgroup's limit and the address-space limit; of a GPU
/// what is free there.
std::uint64_t available_memory_bytes(c10::Device device = c10::kCPU);

/// Highest resident set of this process so far.
std::uint64_t peak_rss_bytes();

/// Throws Error{unreadable} with the bytes needed and available if a run does not fit.
void require_memory(const ModelConfig& config, DType dtype, std::int64_t length, c10::Device device = c10::kCPU);

}  // namespace kvdiv
