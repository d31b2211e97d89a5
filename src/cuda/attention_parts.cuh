#pragma once
// What the kernels of attention share: which query a column is, which softmax weight and which sum.
//
// The R query heads of a key/value head and all T positions are the columns of one product: column c is head c / T of
// the group, position c mod T. So keys and values are read once for a group.
#include "device_code.h"
#include "kernels.h"
#include "lanes.cuh"
#include "launch.h"

namespace kvdiv::device {

/// Keys that are summed into one accumulator of weights·v, by absolute position.
inline constexpr int kKeyChunk = 256;
/// Lanes of the softmax's sum.
inline constexpr int kSoftmaxLanes = 128;
inline constexpr int kAttentionThreads = 128;

/// Row (head, position) of a tensor [H,T,…] that a column of a group stands for. 32-bit: divisions are what costs here.
struct Columns {
  int group, of_head, n_positions;

  KVDIV_DEVICE Columns(const cuda::AttentionShape& s, int g)
      : group(g), of_head(static_cast<int>(s.H / s.G)), n_positions(static_cast<int>(s.T)) {}
  KVDIV_DEVICE int n() const { return of_head * n_positions; }
  KVDIV_DEVICE int head(int c) const { return group * of_head + c / n_positions; }
  KVDIV_DEVICE int position(int c) const { return c % n_positions; }
  KVDIV_DEVICE std::int64_t row(int c) const { return static_cast<std::int64_t>(group) * n() + c; }
};

/// The sum of q·k as it is stored: rounded, scaled, rounded, capped with a rounding after each step.
template <class T>
KVDIV_DEVICE T score_of(Wide<T> product, Wide<T> scale, Wide<T> cap) {
  const Wide<T> scaled = rounded<T>(mul(rounded<T>(product), scale));
  return narrow<T>(cap == 0 ? scaled : capped<T>(scaled, cap));
}

/// First and last chunk of keys that a view has a part of.
inline std::int64_t first_key_chunk(const cuda::AttentionShape& s) { return s.first_key / kKeyChunk; }
inline std::int64_t n_key_chunks(const cuda::AttentionShape& s) {
  return (s.first_key + s.S - 1) / kKeyChunk - first_key_chunk(s) + 1;
}

/// A row of scores to weights. The lane of a key is its absolute position mod 128; hidden keys take no part.
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kSoftmaxLanes, 1) attention_softmax(cuda::SoftmaxCall call) {
  using W = Wide<T>;
  constexpr int kWarps = kSoftmaxLanes / kWarp;
  const std::int64_t row = block_x();
  const int S = static_cast<int>(call.shape.S);
  const auto* const scores = static_cast<const T*>(call.scores) + row * S;
  auto* const weights = static_cast<T*>(call.weights) + row * S;
  const bool* const visible = call.visible == nullptr ? nullptr : call.visible + row % call.shape.T * S;
  const int first_lane = static_cast<int>(call.shape.first_key % kSoftmaxLanes);
  const int first = (thread_x() - first_lane + kSoftmaxLanes) % kSoftmaxLanes;
  auto* const scratch = reinterpret_cast<W*>(shared_memory());

  W largest = minus_infinity(W{});
  KVDIV_UNROLL_4
  for (int s = first; s < S; s += kSoftmaxLanes)
    if (visible == nullptr || visible[s]) largest = larger(largest, widen(scores[s]));
  largest = largest_of_lanes<kWarps>(largest, scratch);
  W sum = 0;
  KVDIV_UNROLL_4
  for (int s = first; s < S; s += kSoftmaxLanes)
    if (visible == nullptr || visible[s]) sum = add(sum, exponential(add(widen(scores[s]), -largest)));
  sum = add_lanes<kWarps>(sum, scratch + kWarps);
  KVDIV_UNROLL_4
  for (int s = first; s < S; s += kSoftmaxLanes) {
    const bool seen = visible == nullptr || visible[s];
    weights[s] = seen ? narrow<T>(divide(exponential(add(widen(scores[s]), -largest)), sum)) : zero<T>();
  }
}

/// Chunk sums [chunk][H][T][D], added ascending, to y [T,H,D].
template <class T>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kAttentionThreads, 1) add_key_chunks(cuda::MixCall call, int n_chunks) {
  const cuda::AttentionShape& shape = call.shape;
  const std::int64_t n = shape.H * shape.T * shape.D;
  const std::int64_t i = static_cast<std::int64_t>(block_x()) * kAttentionThreads + thread_x();
  if (i >= n) return;
  const auto* const sums = static_cast<const Wide<T>*>(call.workspace);
  Wide<T> total = 0;
  KVDIV_UNROLL_4
  for (int c = 0; c < n_chunks; ++c) total = add(total, sums[c * n + i]);
  const std::int64_t d = i % shape.D, t = i / shape.D % shape.T, h = i / shape.D / shape.T;
  static_cast<T*>(call.y)[(t * shape.H + h) * shape.D + d] = narrow<T>(total);
}

}  // namespace kvdiv::device
