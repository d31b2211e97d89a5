#pragma once
// Attention's two products on tensor cores. Keys (values) are the 16-row operand, queries (weights) the 8-column
// operand.
#include "attention_parts.cuh"

namespace kvdiv::device {

/// Bytes between rows of a tile: sixteen more than the terms, an odd number of 16-byte pieces, so that the eight rows
/// that ldmatrix reads at once lie in different banks.
KVDIV_HOST_DEVICE constexpr int tile_stride(int n_terms) { return n_terms * 2 + 16; }
KVDIV_HOST_DEVICE constexpr int padded_terms(std::int64_t D) { return static_cast<int>((D + 15) / 16 * 16); }

/// Keys of a block of `attention_scores`: sixteen a warp.
inline constexpr int kKeysOfBlock = 64;
/// Elements of a head of a block of `attention_mix`: sixteen a warp.
inline constexpr int kElementsOfBlock = 64;

/// B of kColumnTiles tiles of eight columns for sixteen terms from term k on, and the products with A.
template <class T, int kColumnTiles>
KVDIV_DEVICE void add_step(float (&sum)[kColumnTiles][4], const std::uint32_t (&a)[4], const char* columns, int stride,
                           int k, int lane) {
  KVDIV_UNROLL
  for (int j = 0; j < kColumnTiles; j += 2) {
    // Matrices 2 and 3 are the next eight columns; of a single tile, the same ones again, for results that are not
    // used.
    const int column = 8 * j + (lane & 7) + (kColumnTiles == 1 ? 0 : (lane >> 4) << 3);
    std::uint32_t b[4];
    load_matrices(b, columns + column * stride + (k + 8 * ((lane >> 3) & 1)) * 2);
    multiply_add_tile<T>(sum[j], a, b[0], b[1]);
    if (j + 1 < kColumnTiles) multiply_add_tile<T>(sum[j + 1], a, b[2], b[3]);
  }
}

/// Rows of D elements to a tile, padded with zeros up to a multiple of sixteen. `row(i)`: where row i lies, or null:
/// zeros. `anywhere`: an address that is valid, for copies of nothing.
template <class T, class F>
KVDIV_DEVICE void copy_rows(char* tile, int n_rows, int D, const T* anywhere, F row) {
  const int pieces = padded_terms(D) / 8, stride = tile_stride(padded_terms(D));
  for (int i = thread_x(); i < n_rows * pieces; i += kAttentionThreads) {
    const int r = i / pieces, piece = i % pieces;
    const T* const from = row(r);
    const bool there = from != nullptr && piece * 8 < D;
    copy_async(tile + r * stride + piece * 16, there ? from + piece * 8 : anywhere, there ? 16 : 0);
  }
}

template <class T, int kColumnTiles>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kAttentionThreads, 2) attention_scores(cuda::ScoreCall call) {
  constexpr int kColumns = 8 * kColumnTiles, kOutStride = kKeysOfBlock + 8;
  const cuda::AttentionShape& shape = call.shape;
  const int lane = thread_x() & 31, warp = thread_x() >> 5, D = static_cast<int>(shape.D);
  const std::int64_t first_key = static_cast<std::int64_t>(block_x()) * kKeysOfBlock;
  const int first_column = block_y() * kColumns;
  const Columns columns(shape, block_z());
  const int terms = padded_terms(D), stride = tile_stride(terms);
  char* const keys = shared_memory();
  char* const queries = keys + kKeysOfBlock * stride;

  const T* const k = static_cast<const T*>(call.k.data) + columns.group * call.k.head_stride;
  const T* const q = static_cast<const T*>(call.q.data);
  copy_rows<T>(keys, kKeysOfBlock, D, k, [&](int i) -> const T* {
    return first_key + i < shape.S ? k + (first_key + i) * call.k.position_stride : nullptr;
  });
  copy_rows<T>(queries, kColumns, D, q, [&](int i) -> const T* {
    const int c = first_column + i;
    if (c >= columns.n()) return nullptr;
    return q + columns.head(c) * call.q.head_stride + columns.position(c) * call.q.position_stride;
  });
  copy_async_commit();
  copy_async_wait<0>();
  block_barrier();

  float sum[kColumnTiles][4] = {};
  for (int at = 0; at < terms; at += 16) {
    std::uint32_t a[4];
    load_matrices(a, keys + (16 * warp + (lane & 15)) * stride + (at + 8 * (lane >> 4)) * 2);
    add_step<T, kColumnTiles>(sum, a, queries, stride, at, lane);
  }
  block_barrier();  // all have read the operands: the result takes their place
  auto* const out = reinterpret_cast<T*>(shared_memory());
  const auto scale = static_cast<float>(call.scale), cap = static_cast<float>(call.cap);
  KVDIV_UNROLL
  for (int j = 0; j < kColumnTiles; ++j) {
    KVDIV_UNROLL
    for (int e = 0; e < 4; ++e)
      out[(8 * j + 2 * (lane & 3) + (e & 1)) * kOutStride + 16 * warp + (lane >> 2) + 8 * (e >> 1)] =
          score_of<T>(sum[j][e], scale, cap);
  }
  block_barrier();
  for (int i = warp; i < kColumns && first_column + i < columns.n(); i += kAttentionThreads / kWarp) {
    T* const to = static_cast<T*>(call.scores) + columns.row(first_column + i) * shape.S + first_key;
    KVDIV_UNROLL
    for (int key = lane; key < kKeysOfBlock; key += kWarp)
      if (first_key + key < shape.S) to[key] = out[i * kOutStride + key];
  }
}

/// One chunk of keys, values and weights, to shared memory; what the view has not is zero.
template <class T, int kColumns>
KVDIV_DEVICE void load_key_chunk(const cuda::MixCall& call, const Columns& columns, std::int64_t chunk,
                                 int first_column, int first_d, char* values, char* weights) {
  const cuda::AttentionShape& shape = call.shape;
  const std::int64_t s0 = chunk * kKeyChunk - shape.first_key;  // index of the chunk's first key: may be negative
  const T* const v = static_cast<const T*>(call.v.data) + columns.group * call.v.head_stride;
  for (int i = thread_x(); i < kKeyChunk * (kElementsOfBlock / 8); i += kAttentionThreads) {
    const int key = i / (kElementsOfBlock / 8), d = i % (kElementsOfBlock / 8) * 8;
    const bool there = s0 + key >= 0 && s0 + key < shape.S && first_d + d < shape.D;
    copy_async(values + key * tile_stride(kElementsOfBlock) + d * 2,
               there ? v + (s0 + key) * call.v.position_stride + first_d + d : v, there ? 16 : 0);
  }
  copy_async_commit();
  // Rows of weights are aligned to nothing: two bytes at a time.
  for (int i = thread_x() / kWarp; i < kColumns; i += kAttentionThreads / kWarp) {
    const bool is_column = first_column + i < columns.n();
    const T* const from =
        static_cast<const T*>(call.weights) + columns.row(is_column ? first_column + i : 0) * shape.S + s0;
    T* const to = reinterpret_cast<T*>(weights + i * tile_stride(kKeyChunk));
    KVDIV_UNROLL
    for (int key = thread_x() % kWarp; key < kKeyChunk; key += kWarp) {
      const bool there = is_column && s0 + key >= 0 && s0 + key < shape.S;
      to[key] = there ? from[key] : zero<T>();
    }
  }
  copy_async_wait<0>();
}

/// `n_chunks` chunks from `first_chunk` on. With a workspace a block (its place along z) does one of them and leaves
/// its sum there for add_key_chunks; without, it does all.
template <class T, int kColumnTiles>
KVDIV_KERNEL void KVDIV_LAUNCH_BOUNDS(kAttentionThreads, 2)
    attention_mix(cuda::MixCall call, std::int64_t first_chunk, int n_chunks, int n_tiles_d) {
  constexpr int kColumns = 8 * kColumnTiles;
  const cuda::AttentionShape& shape = call.shape;
  const int lane = thread_x() & 31, warp = thread_x() >> 5;
  const int first_d = block_x() % n_tiles_d * kElementsOfBlock;
  const int first_column = block_x() / n_tiles_d * kColumns;
  const Columns columns(shape, block_y());
  const bool one = call.workspace != nullptr;
  char* const values = shared_memory();
  char* const weights = values + kKeyChunk * tile_stride(kElementsOfBlock);

  float total[kColumnTiles][4] = {};
  for (int chunk = one ? block_z() : 0; chunk < (one ? block_z() + 1 : n_chunks); ++chunk) {
    load_key_chunk<T, kColumns>(call, columns, first_chunk + chunk, first_column, first_d, values, weights);
    block_barrier();
    float sum[kColumnTiles][4] = {};
    for (int k = 0; k < kKeyChunk; k += 16) {
      std::uint32_t a[4];  // sixteen elements of a head by sixteen keys, which lie there by keys
      load_matrices_transposed(a, values + (k + (lane & 7) + 8 * (lane >> 4)) * tile_stride(kElementsOfBlock) +
                                      (16 * warp + 8 * ((lane >> 3) & 1)) * 2);
      add_step<T, kColumnTiles>(sum, a, weights, tile_stride(kKeyChunk), k, lane);
    }
    KVDIV_UNROLL
    for (int j = 0; j < kColumnTiles; ++j) {
      KVDIV_UNROLL
      for (int e = 0; e < 4; ++e) total[j][e] = one ? sum[j][e] : add(total[j][e], sum[j][e]);
    }
    block_barrier();  // all have read the chunk
  }
  auto* const sums = static_cast<float*>(call.workspace) + (one ? block_z() * shape.H * shape.T * shape.D : 0);
  auto* const y = static_cast<T*>(call.y);
  KVDIV_UNROLL
  for (int j = 0; j < 2 * kColumnTiles; ++j) {
    const int c = first_column + 8 * (j >> 1) + 2 * (lane & 3) + (j & 1);
    if (c >= columns.n()) continue;
    const std::int64_t in_sums = columns.row(c) * shape.D,
                       in_y = (columns.position(c) * shape.H + columns.head(c)) * shape.D;
    KVDIV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int d = first_d + 16 * warp + (lane >> 2) + 8 * half;
      const float out = total[j >> 1][2 * half + (j & 1)];
      if (d >= shape.D) continue;
      if (one)
        sums[in_sums + d] = out;
      else
        y[in_y + d] = narrow<T>(out);
    }
  }
}

}  // namespace kvdiv::device
