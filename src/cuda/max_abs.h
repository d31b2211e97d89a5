#pragma once
// The largest |x| of a tensor, for watching activations: a maximum does not depend on the order it is taken in.
#include <cstdint>

#include "kvdiv/numerics/kernels.h"

struct CUstream_st;

namespace kvdiv::cuda {

/// Raises finite[0] to the largest finite |x| of n contiguous elements, and all[0] to the largest of all with NaN above
/// infinity. Both are FP32 on the device and not below 0; of FP64 what exceeds FP32's range counts as its largest number.
void note_max_abs(Storage storage, const void* x, std::int64_t n, float* finite, float* all, CUstream_st* stream);

}  // namespace kvdiv::cuda
