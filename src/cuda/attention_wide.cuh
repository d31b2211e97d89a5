#pragma once
// Attention's two products in FP32 and FP64: chains of fused multiply-adds, eight columns a thread.
#include "attention_parts.cuh"

namespace kvdiv::device {

inline constexpr int kWideColumns = 8;
/// Terms of q·k that lie in shared memory at once.
inline constexpr int kWideTerms = 16;
inline constexpr int kWideRow = kWideTerms + 1;  ///< padded: a warp reads a column of it from different banks

/// A thread is a key.
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kAttentionThreads, 1) wide_attention_scores(cuda::ScoreCall call) {
  const cuda::AttentionShape& shape = call.shape;
  const int D = static_cast<int>(shape.D);
  const std::int64_t first_key = static_cast<std::int64_t>(block_x()) * kAttentionThreads;
  const int first_column = block_y() * kWideColumns;
  const Columns columns(shape, block_z());
  auto* const keys = reinterpret_cast<T*>(shared_memory());
  T* const queries = keys + kAttentionThreads * kWideRow;
  const T* const k = static_cast<const T*>(call.k.data) + columns.group * call.k.head_stride;
  const T* const q = static_cast<const T*>(call.q.data);

  T sum[kWideColumns] = {};
  for (int first = 0; first < D; first += kWideTerms) {
    for (int i = thread_x(); i < kAttentionThreads * kWideTerms; i += kAttentionThreads) {
      const int r = i / kWideTerms, d = first + i % kWideTerms;
      const bool there = first_key + r < shape.S && d < D;
      keys[r * kWideRow + i % kWideTerms] = there ? k[(first_key + r) * call.k.position_stride + d] : T{0};
    }
    for (int i = thread_x(); i < kWideColumns * kWideTerms; i += kAttentionThreads) {
      const int c = first_column + i / kWideTerms;
      const int d = first + i % kWideTerms;
      const bool there = c < columns.n() && d < D;
      queries[i] =
          there ? q[columns.head(c) * call.q.head_stride + columns.position(c) * call.q.position_stride + d] : T{0};
    }
    block_barrier();
    const int n = D - first < kWideTerms ? D - first : kWideTerms;
    for (int d = 0; d < n; ++d) {
      const T key = keys[thread_x() * kWideRow + d];
      KVDIV_UNROLL
      for (int c = 0; c < kWideColumns; ++c) sum[c] = fused(key, queries[c * kWideTerms + d], sum[c]);
    }
    block_barrier();
  }
  const std::int64_t s = first_key + thread_x();
  KVDIV_UNROLL
  for (int c = 0; c < kWideColumns; ++c)
    if (first_column + c < columns.n() && s < shape.S)
      static_cast<T*>(call.scores)[columns.row(first_column + c) * shape.S + s] =
          score_of<T>(sum[c], static_cast<T>(call.scale), static_cast<T>(call.cap));
}

/// A thread is an element of a head. Chunks and workspace as in attention_mix.
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kAttentionThreads, 1)
    wide_attention_mix(cuda::MixCall call, std::int64_t first_chunk, int n_chunks, int n_tiles_d) {
  const cuda::AttentionShape& shape = call.shape;
  const std::int64_t d = static_cast<std::int64_t>(block_x() % n_tiles_d) * kAttentionThreads + thread_x();
  const int first_column = block_x() / n_tiles_d * kWideColumns;
  const Columns columns(shape, block_y());
  const bool one = call.workspace != nullptr;
  auto* const weights = reinterpret_cast<T*>(shared_memory());  // [key][column]
  const T* const v = static_cast<const T*>(call.v.data) + columns.group * call.v.head_stride;

  T total[kWideColumns] = {};
  for (int chunk = one ? block_z() : 0; chunk < (one ? block_z() + 1 : n_chunks); ++chunk) {
    const std::int64_t s0 = (first_chunk + chunk) * kKeyChunk - shape.first_key;
    for (int i = thread_x(); i < kKeyChunk * kWideColumns; i += kAttentionThreads) {
      const int c = first_column + i / kKeyChunk;
      const std::int64_t s = s0 + i % kKeyChunk;
      const bool there = c < columns.n() && s >= 0 && s < shape.S;
      weights[i % kKeyChunk * kWideColumns + i / kKeyChunk] =
          there ? static_cast<const T*>(call.weights)[columns.row(c) * shape.S + s] : T{0};
    }
    block_barrier();
    T sum[kWideColumns] = {};
    KVDIV_UNROLL_4
    for (int key = 0; key < kKeyChunk; ++key) {
      const bool there = d < shape.D && s0 + key >= 0 && s0 + key < shape.S;
      const T value = there ? v[(s0 + key) * call.v.position_stride + d] : T{0};
      KVDIV_UNROLL
      for (int c = 0; c < kWideColumns; ++c) sum[c] = fused(value, weights[key * kWideColumns + c], sum[c]);
    }
    KVDIV_UNROLL
    for (int c = 0; c < kWideColumns; ++c) total[c] = one ? sum[c] : add(total[c], sum[c]);
    block_barrier();
  }
  if (d >= shape.D) return;
  auto* const sums = static_cast<T*>(call.workspace) + (one ? block_z() * shape.H * shape.T * shape.D : 0);
  KVDIV_UNROLL
  for (int i = 0; i < kWideColumns; ++i) {
    const int c = first_column + i;
    if (c >= columns.n()) continue;
    if (one)
      sums[columns.row(c) * shape.D + d] = total[i];
    else
      static_cast<T*>(call.y)[(columns.position(c) * shape.H + columns.head(c)) * shape.D + d] = total[i];
  }
}

}  // namespace kvdiv::device
