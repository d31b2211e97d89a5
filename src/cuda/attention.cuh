#pragma once
// Attention's launches: which kernels, how many blocks. None of it decides bits. `launch`: see linear.cuh.
#include "attention_tensor.cuh"
#include "attention_wide.cuh"

namespace kvdiv::device {

template <class T>
inline constexpr bool kOnTensorCores = sizeof(T) == 2;

/// Blocks that are enough for a GPU: with fewer, each chunk of keys gets blocks of its own.
inline constexpr std::int64_t kEnoughBlocks = 264;

/// A few columns (a decoding step) take one tile of eight.
template <class T>
std::int64_t columns_of_block(const cuda::AttentionShape& s) {
  if (!kOnTensorCores<T>) return kWideColumns;
  return s.H / s.G * s.T <= 8 ? 8 : 64;
}
template <class T>
std::int64_t mix_tiles_d(const cuda::AttentionShape& s) {
  return cuda::n_tiles(s.D, kOnTensorCores<T> ? kElementsOfBlock : kAttentionThreads);
}
template <class T>
std::int64_t column_tiles(const cuda::AttentionShape& s) {
  return cuda::n_tiles(s.H / s.G * s.T, columns_of_block<T>(s));
}
template <class T>
std::size_t workspace_bytes(const cuda::AttentionShape& s) {
  const std::int64_t blocks = column_tiles<T>(s) * mix_tiles_d<T>(s) * s.G, chunks = n_key_chunks(s);
  if (chunks == 1 || blocks >= kEnoughBlocks) return 0;
  return static_cast<std::size_t>(chunks * s.H * s.T * s.D) * sizeof(Wide<T>);
}

template <class T>
cuda::Geometry scores_geometry(const cuda::AttentionShape& s) {
  if constexpr (kOnTensorCores<T>) {
    const std::int64_t columns = columns_of_block<T>(s);
    const std::int64_t operands = (kKeysOfBlock + columns) * tile_stride(padded_terms(s.D));
    const std::int64_t result = columns * (kKeysOfBlock + 8) * 2;
    return {cuda::n_tiles(s.S, kKeysOfBlock), column_tiles<T>(s), s.G, kAttentionThreads,
            static_cast<std::size_t>(operands > result ? operands : result)};
  } else {
    return {cuda::n_tiles(s.S, kAttentionThreads), column_tiles<T>(s), s.G, kAttentionThreads,
            (kAttentionThreads * kWideRow + kWideColumns * kWideTerms) * sizeof(T)};
  }
}
template <class T>
cuda::Geometry mix_geometry(const cuda::MixCall& call) {
  const cuda::AttentionShape& s = call.shape;
  const std::int64_t columns = columns_of_block<T>(s);
  const std::int64_t shared = kOnTensorCores<T>
                                  ? kKeyChunk * tile_stride(kElementsOfBlock) + columns * tile_stride(kKeyChunk)
                                  : kKeyChunk * kWideColumns * static_cast<std::int64_t>(sizeof(T));
  return {column_tiles<T>(s) * mix_tiles_d<T>(s), s.G, call.workspace == nullptr ? 1 : n_key_chunks(s),
          kAttentionThreads, static_cast<std::size_t>(shared)};
}

inline void check_shape(const cuda::AttentionShape& s, const char* kernel) {
  cuda::require(s.G > 0 && s.H % s.G == 0, kernel, "query heads are not a multiple of key heads");
  cuda::require(s.T > 0 && s.S > 0 && s.D > 0 && s.first_key >= 0, kernel, "an empty shape");
  constexpr std::int64_t kLimit = std::int64_t{1} << 30;  // what is counted in 32 bits
  cuda::require(s.H / s.G * s.T < kLimit && s.S < kLimit && s.D < kLimit, kernel, "a shape that is too large");
}
template <class T>
void check_heads(const cuda::HeadsView& x, std::int64_t D, const char* kernel) {
  if (!kOnTensorCores<T>) return;
  cuda::require(D % 8 == 0, kernel, "the head dimension is not a multiple of 8");
  cuda::require(cuda::is_aligned(x.data) && cuda::is_aligned_stride<T>(x.head_stride) &&
                    cuda::is_aligned_stride<T>(x.position_stride),
                kernel, "heads are not aligned");
}

template <class T, class Launch>
void launch_scores(const cuda::ScoreCall& call, Launch&& launch) {
  check_shape(call.shape, "attention_scores");
  check_heads<T>(call.q, call.shape.D, "attention_scores");
  check_heads<T>(call.k, call.shape.D, "attention_scores");
  const cuda::Geometry geometry = scores_geometry<T>(call.shape);
  if constexpr (!kOnTensorCores<T>)
    launch("attention_scores", &wide_attention_scores<T>, geometry, call);
  else if (columns_of_block<T>(call.shape) == 8)
    launch("attention_scores", &attention_scores<T, 1>, geometry, call);
  else
    launch("attention_scores", &attention_scores<T, 8>, geometry, call);
}

template <class T, class Launch>
void launch_softmax(const cuda::SoftmaxCall& call, Launch&& launch) {
  check_shape(call.shape, "attention_softmax");
  launch("attention_softmax", &attention_softmax<T>,
         cuda::Geometry{call.shape.H * call.shape.T, 1, 1, kSoftmaxLanes, 2 * kSoftmaxLanes / kWarp * sizeof(Wide<T>)},
         call);
}

/// With a workspace in two kernels, chunks apart; else, and where that would gain nothing, in one.
template <class T, class Launch>
void launch_mix(cuda::MixCall call, Launch&& launch) {
  if (workspace_bytes<T>(call.shape) == 0) call.workspace = nullptr;
  check_shape(call.shape, "attention_mix");
  check_heads<T>(call.v, call.shape.D, "attention_mix");
  const cuda::AttentionShape& s = call.shape;
  const cuda::Geometry geometry = mix_geometry<T>(call);
  const std::int64_t first = first_key_chunk(s);
  const auto n_chunks = static_cast<int>(n_key_chunks(s)), n_tiles_d = static_cast<int>(mix_tiles_d<T>(s));
  if constexpr (!kOnTensorCores<T>)
    launch("attention_mix", &wide_attention_mix<T>, geometry, call, first, n_chunks, n_tiles_d);
  else if (columns_of_block<T>(s) == 8)
    launch("attention_mix", &attention_mix<T, 1>, geometry, call, first, n_chunks, n_tiles_d);
  else
    launch("attention_mix", &attention_mix<T, 8>, geometry, call, first, n_chunks, n_tiles_d);
  if (call.workspace != nullptr)
    launch("add_key_chunks", &add_key_chunks<T>,
           cuda::Geometry{cuda::n_tiles(s.H * s.T * s.D, kAttentionThreads), 1, 1, kAttentionThreads, 0}, call,
           n_chunks);
}

}  // namespace kvdiv::device
