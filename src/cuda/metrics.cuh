#pragma once
// Kernels of the step metrics. One pass of kvdiv/stats/metric_passes.h is one kernel: it first merges what the blocks of the
// kernel before found, which every block does for itself, and then looks at its own tokens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device_code.h"
#include "kvdiv/base/step_metrics.h"
#include "kvdiv/stats/metric_passes.h"
#include "launch.h"

namespace kvdiv::device {

namespace passes = metric_passes;

inline constexpr int kMetricThreads = 256;
inline constexpr int kMaxMetricBlocks = kMetricThreads;  // a thread for each where they are merged

/// A matter of V alone, as it decides the order of the sums.
inline int metric_blocks(std::int64_t V) {
  return static_cast<int>(std::min<std::int64_t>((V + kMetricThreads - 1) / kMetricThreads, kMaxMetricBlocks));
}

struct SumsOfExponentials {
  passes::SumOfExponentials on, off;  // off: for rows that are not narrow

  KVDIV_HOST_DEVICE void merge(const SumsOfExponentials& other) {
    on.merge(other.on);
    off.merge(other.off);
  }
};

/// Of all tokens. Block 0 of the kernel that merges a result writes it, for the kernels that follow.
struct MetricTotals {
  passes::Scan scan;
  passes::Softmax p, q;
  double mean;
};

/// What one block found in each pass.
struct BlockMetrics {
  passes::Scan scan;
  SumsOfExponentials sums;
  passes::MeanDifference difference;
  passes::Expectation expectation;
  passes::Divergences divergences;
};

template <class T>
struct MetricCall {
  const T *on, *off;
  std::int64_t V;
  MetricTotals* totals;
  BlockMetrics* blocks;  ///< [n_blocks]
  int n_blocks;
  StepMetrics* out;
};

inline constexpr std::size_t kMetricSharedBytes = kMetricThreads * sizeof(passes::Scan);  // the largest of the passes

/// As stored: the conversion to double may change a NaN's bits.
template <class T>
KVDIV_DEVICE bool same_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  Bits bits_of_a, bits_of_b;
  memcpy(&bits_of_a, &a, sizeof(T));
  memcpy(&bits_of_b, &b, sizeof(T));
  return bits_of_a == bits_of_b;
}

/// visit(i, a, b) for this thread's tokens, ascending.
template <class T, class Visit>
KVDIV_DEVICE void for_own_tokens(const MetricCall<T>& call, const Visit& visit) {
  const std::int64_t stride = static_cast<std::int64_t>(call.n_blocks) * kMetricThreads;
  for (std::int64_t i = static_cast<std::int64_t>(block_x()) * kMetricThreads + thread_x(); i < call.V; i += stride)
    visit(i, static_cast<double>(widen(call.on[i])), static_cast<double>(widen(call.off[i])));
}

/// All threads' passes in one, known to all threads: thread t takes over t + 128, then t + 64, …, t + 1.
template <class Pass>
KVDIV_DEVICE Pass merged_threads(const Pass& mine) {
  static_assert(kMetricThreads * sizeof(Pass) <= kMetricSharedBytes && alignof(Pass) <= 16);
  auto* const shared = reinterpret_cast<Pass*>(shared_memory());
  const int t = thread_x();
  shared[t] = mine;
  for (int n = kMetricThreads / 2; n > 0; n /= 2) {
    block_barrier();
    if (t < n) shared[t].merge(shared[t + n]);
  }
  block_barrier();
  const Pass all = shared[0];
  block_barrier();  // all have read it before it is overwritten
  return all;
}

/// All blocks' passes in one, in the same tree.
template <class T, class Pass>
KVDIV_DEVICE Pass merged_blocks(const MetricCall<T>& call, Pass BlockMetrics::*pass) {
  const int t = thread_x();
  return merged_threads(t < call.n_blocks ? call.blocks[t].*pass : Pass{});
}

template <class T, class Pass>
KVDIV_DEVICE void put_block(const MetricCall<T>& call, Pass BlockMetrics::*pass, const Pass& mine) {
  const Pass all = merged_threads(mine);
  if (thread_x() == 0) call.blocks[block_x()].*pass = all;
}

KVDIV_DEVICE bool first_thread() { return block_x() == 0 && thread_x() == 0; }

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_scan(MetricCall<T> call) {
  passes::Scan mine;
  for_own_tokens(call,
                 [&](std::int64_t i, double a, double b) { mine.visit(i, a, b, same_bits(call.on[i], call.off[i])); });
  put_block(call, &BlockMetrics::scan, mine);
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_softmax(MetricCall<T> call) {
  const passes::Scan scan = merged_blocks(call, &BlockMetrics::scan);
  if (first_thread()) call.totals->scan = scan;
  if (!scan.has_divergences()) return;
  SumsOfExponentials mine;
  for_own_tokens(call, [&](std::int64_t, double a, double b) {
    mine.on.visit(a, scan.on.first);
    if (!scan.is_narrow()) mine.off.visit(b, scan.off.first);
  });
  put_block(call, &BlockMetrics::sums, mine);
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_mean(MetricCall<T> call) {
  const passes::Scan& scan = call.totals->scan;
  if (!scan.has_divergences()) return;
  const SumsOfExponentials sums = merged_blocks(call, &BlockMetrics::sums);
  const auto p = passes::Softmax::of(scan.on.first, sums.on);
  if (first_thread()) {
    call.totals->p = p;
    call.totals->q = passes::Softmax::of(scan.off.first, sums.off);
  }
  if (!scan.is_narrow()) return;
  passes::MeanDifference mine;
  for_own_tokens(call, [&](std::int64_t, double a, double b) { mine.visit(p.p(a), a, b); });
  put_block(call, &BlockMetrics::difference, mine);
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_expectation(MetricCall<T> call) {
  const passes::Scan& scan = call.totals->scan;
  if (!scan.has_divergences() || !scan.is_narrow()) return;
  const double mean = merged_blocks(call, &BlockMetrics::difference).sum.value();
  if (first_thread()) call.totals->mean = mean;
  const passes::Softmax p = call.totals->p;
  passes::Expectation mine;
  for_own_tokens(call, [&](std::int64_t, double a, double b) { mine.visit(p.p(a), a, b, mean); });
  put_block(call, &BlockMetrics::expectation, mine);
}

template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_divergences(MetricCall<T> call) {
  const passes::Scan& scan = call.totals->scan;
  if (!scan.has_divergences()) return;
  const passes::Softmax p = call.totals->p, q = call.totals->q;
  passes::Divergences mine;
  if (scan.is_narrow()) {
    const double mean = call.totals->mean, k = merged_blocks(call, &BlockMetrics::expectation).k();
    for_own_tokens(call, [&](std::int64_t, double a, double b) { mine.visit_narrow(p.p(a), a, b, mean, k); });
  } else {
    for_own_tokens(call, [&](std::int64_t, double a, double b) { mine.visit_wide(p.p(a), q.p(b), a, b, p, q); });
  }
  put_block(call, &BlockMetrics::divergences, mine);
}

/// One block.
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_result(MetricCall<T> call) {
  const passes::Scan& scan = call.totals->scan;
  StepMetrics m = scan.metrics();
  if (scan.has_divergences()) merged_blocks(call, &BlockMetrics::divergences).put(m);
  if (thread_x() == 0) *call.out = m;
}

/// One block; after a scan of a row against itself.
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kMetricThreads, 1) metrics_result_of_one_row(MetricCall<T> call) {
  StepMetrics m = merged_blocks(call, &BlockMetrics::scan).metrics();
  m.n_nonfinite /= 2;
  if (thread_x() == 0) *call.out = m;
}

inline std::size_t metric_workspace_size(std::int64_t V) {
  return sizeof(MetricTotals) + static_cast<std::size_t>(metric_blocks(V)) * sizeof(BlockMetrics);
}

/// The kernels in their order: `launch(name, kernel, geometry, call)`. `off` null: of one row alone.
template <class T, class Launch>
void launch_metrics(const void* on, const void* off, std::int64_t V, void* workspace, StepMetrics* out,
                    Launch&& launch) {
  cuda::require(V >= 1 && on != nullptr, "metrics", "no row of logits");
  cuda::require(cuda::is_aligned(workspace), "metrics", "a workspace that is not aligned");
  auto* const totals = static_cast<MetricTotals*>(workspace);
  auto* const blocks = reinterpret_cast<BlockMetrics*>(totals + 1);
  const int n = metric_blocks(V);
  const MetricCall<T> call{
      static_cast<const T*>(on), static_cast<const T*>(off != nullptr ? off : on), V, totals, blocks, n, out};
  const cuda::Geometry all{n, 1, 1, kMetricThreads, kMetricSharedBytes};
  const cuda::Geometry one{1, 1, 1, kMetricThreads, kMetricSharedBytes};
  launch("metrics_scan", &metrics_scan<T>, all, call);
  if (off == nullptr) return launch("metrics_result_of_one_row", &metrics_result_of_one_row<T>, one, call);
  launch("metrics_softmax", &metrics_softmax<T>, all, call);
  launch("metrics_mean", &metrics_mean<T>, all, call);
  launch("metrics_expectation", &metrics_expectation<T>, all, call);
  launch("metrics_divergences", &metrics_divergences<T>, all, call);
  launch("metrics_result", &metrics_result<T>, one, call);
}

}  // namespace kvdiv::device
