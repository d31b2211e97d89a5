#pragma once
#include <vector>

#include "kvdiv/numerics/kernels.h"

namespace kvdiv {

/// The tables with a fused multiply-add that this CPU can run, widest first.
std::vector<const KernelTable*> compiled_kernels();

}  // namespace kvdiv
