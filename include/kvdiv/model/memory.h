#pragma once
// What a run needs, and what the machine has: a run that cannot fit is refused before it decodes.
#include <c10/core/Device.h>

#include <cstdint>

#include "kvdiv/base/enums.h"
#include "kvdiv/model/config.h"
#include "kvdiv/model/memory_need.h"

namespace kvdiv {

/// Bytes that can still be allocated: the least of MemAvailable, the cgroup's limit and the address-space limit; of a GPU
/// what is free there.
std::uint64_t available_memory_bytes(c10::Device device = c10::kCPU);

/// Highest resident set of this process so far.
std::uint64_t peak_rss_bytes();

/// Throws Error{unreadable} with the bytes needed and available if a run does not fit.
void require_memory(const ModelConfig& config, DType dtype, std::int64_t length, c10::Device device = c10::kCPU);

}  // namespace kvdiv
