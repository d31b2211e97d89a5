#pragma once
// The metrics of one step, computed where the logits are. Same formulas as compare_logits() (kvdiv/stats/metric_passes.h),
// in FP64, in an order that is a matter of V alone: token i belongs to thread i mod (256·blocks), which sees its tokens
// ascending; threads are merged in a fixed tree, then blocks likewise, by the next kernel. No atomics: repeated calls give
// the same bits. Against the host the divergences differ by roundings (of the sums' order, and of exp, expm1, log1p, sinh
// and tanh, which are CUDA's here); all else is equal.
#include <cstddef>
#include <cstdint>

#include "kvdiv/base/step_metrics.h"
#include "kvdiv/numerics/kernels.h"

struct CUstream_st;

namespace kvdiv::cuda {

/// Bytes of device memory that a call needs (below 64 KiB), aligned to 16. What it holds before and after means nothing;
/// calls on one stream may share it.
std::size_t metrics_workspace_bytes(std::int64_t V);

/// Queues on `stream` what computes the metrics of the rows `on` and `off` [V] (V ≥ 1) in device memory and leaves them at
/// `out`, on the device. Returns at once; allocates nothing and waits for nothing, so it can be recorded in a graph.
/// `off` may be null: then top1_on, margin_on, tie_on and n_nonfinite (of this one row) are found, and the rest is as for
/// a row against itself. Throws Error{internal} if a kernel cannot be started.
void launch_metrics(Storage storage, const void* on, const void* off, std::int64_t V, void* workspace, StepMetrics* out,
                    CUstream_st* stream);

}  // namespace kvdiv::cuda
