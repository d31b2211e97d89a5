#pragma once
// CUDA graphs by way of libtorch, whose allocator must know that memory belongs to a recording.
#include <functional>
#include <memory>

#include "kvdiv/numerics/device.h"

namespace kvdiv::cuda {

std::unique_ptr<RecordedLaunches> record_launches(const std::function<void()>& launches);

}  // namespace kvdiv::cuda
