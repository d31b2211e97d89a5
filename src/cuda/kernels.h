#pragma once
// The kernels of the invariant backend on a GPU: plain device pointers in and out, no tensor library. As on the CPU
// (numerics/kernels.h), every sum has one order, which is a matter of the number of its terms alone, and everything is
// rounded to the storage type where the reference rounds. The two sets of orders differ: a GPU's bits are not a CPU's.
//
//   linear, 16 bit      K in chunks of 512. In a chunk, tensor core instructions of 16 terms each (mma.m16n8k16),
//                       ascending, into an FP32 accumulator that starts at 0; chunk sums added ascending, in FP32, from 0
//   linear, 32/64 bit   the same chunks; in a chunk, one chain of fused multiply-adds over ascending k
//   Σx², Σexp of a row  256 lanes, term i in lane i mod 256, each ascending; then those of a warp (32 lanes) that lie 16,
//                       8, 4, 2, 1 apart are added, then the warps, ascending
//   q·k                 one chunk: 16-term instructions (16 bit) or fused multiply-adds, ascending over D
//   softmax over keys   128 lanes, the key at position p in lane p mod 128, then as above; hidden keys take no part
//   weights·v           keys in chunks of 256 by position, in a chunk as q·k (a step of 16 terms starts at a multiple of
//                       16), chunk sums added ascending from 0; hidden keys have weights of exactly 0
//
// Positions are absolute (first_key + index), so a view that starts later groups its keys as the whole does. One
// instruction computes an output of a product whatever the number of rows: weights (keys, values) are the 16-row operand
// and rows the 8-column operand in all kernels, so tiles, and what shares a tile, decide speed only. This leans on two
// things that a tensor core is not documented to do but does: a column of its result depends on that column alone, and
// terms of zero change nothing. Behind hidden keys lie finite values, for 0·∞ is not 0.
//
// Storage as in numerics/kernels.h; accumulators FP32, FP64 for FP64. exp, log and tanh are CUDA's accurate ones.
//
// Rows are independent: a caller may cut M or T where memory is short ([H,T,S] scores of a long prefix).
//
// All pointers and row strides (in bytes) are multiples of 16 where it says "aligned". Calls return when the work is
// enqueued on the stream; a launch that fails throws Error{internal} with the kernel's name.
#include <cstddef>
#include <cstdint>

#include "kvdiv/numerics/kernels.h"

struct CUstream_st;

namespace kvdiv::cuda {

/// What K must be a multiple of in `linear`: the caller pads weights and rows with zeros, which change no sum.
inline constexpr std::int64_t kTermsMultiple = 64;

/// y[M,N] = x[M,K]·w[N,K]ᵀ, contiguous y.
struct LinearCall {
  const void* x;  ///< aligned
  const void* w;  ///< aligned, rows contiguous
  void* y;
  std::int64_t x_stride = 0;  ///< elements between rows of x; aligned
  std::int64_t M = 0, N = 0, K = 0;
};

/// Rows x [M,C], each normed; contiguous y.
struct NormCall {
  const void *x, *weight;
  void* y;
  std::int64_t x_stride = 0;
  std::int64_t M = 0, C = 0;
  double eps = 0.0, offset = 0.0;
  bool round_before_weight = true;
};

/// Rows x [M,C] → y [M,C] in FP32 (FP64 for FP64).
struct LogSoftmaxCall {
  const void* x;
  void* y;
  std::int64_t x_stride = 0;
  std::int64_t M = 0, C = 0;
};

/// act(gate)·up of rows [M,C], rounded after the activation and after the product.
enum class GatedKind { silu, gelu_tanh };
struct GatedCall {
  const void *gate, *up;
  void* y;                                      ///< contiguous
  std::int64_t gate_stride = 0, up_stride = 0;  ///< elements between rows
  std::int64_t M = 0, C = 0;
  GatedKind kind = GatedKind::silu;
};
/// cap·tanh(x/cap) of n elements, rounded after each step; y may be x.
struct SoftCapCall {
  const void* x;
  void* y;
  std::int64_t n = 0;
  double cap = 0.0;
};

/// x·cos + rotate_half(x)·sin for x [H,T,D] with tables [T,D] in the storage type; contiguous y. No multiply-add is
/// fused: the same bits as ATen's x * cos + cat(-x2, x1) * sin.
struct RotateCall {
  const void *x, *cos, *sin;
  void* y;
  std::int64_t head_stride = 0, position_stride = 0;
  std::int64_t H = 0, T = 0, D = 0;
};

/// A tensor [heads, positions, D] with contiguous D. For 16 bit: aligned, both strides too.
struct HeadsView {
  const void* data = nullptr;
  std::int64_t head_stride = 0, position_stride = 0;
};

/// The sizes of attention. H = G·R query heads; D is a multiple of 8 for 16 bit.
struct AttentionShape {
  std::int64_t H = 0, G = 0, T = 0, S = 0, D = 0;
  std::int64_t first_key = 0;  ///< position of key 0
};

/// q·k → [H,T,S], rounded, scaled, rounded; with a cap also capped, rounded after each step.
struct ScoreCall {
  HeadsView q, k;
  void* scores;
  AttentionShape shape;
  double scale = 1.0;
  double cap = 0.0;  ///< 0: none
};

/// Scores [H,T,S] → weights [H,T,S] (may be the same memory). visible [T,S], bool; null: all keys are. Hidden ones get
/// exactly 0.
struct SoftmaxCall {
  const void* scores;
  void* weights;
  const bool* visible = nullptr;
  AttentionShape shape;
};

/// weights·v → y [T,H,D], contiguous. `workspace`: mix_workspace_bytes of device memory; without it
/// the same bits, more slowly where there are few rows.
struct MixCall {
  const void* weights;
  HeadsView v;
  void* y;
  void* workspace = nullptr;
  AttentionShape shape;
};

void linear(Storage storage, const LinearCall& call, CUstream_st* stream);
void rms_norm(Storage storage, const NormCall& call, CUstream_st* stream);
void log_softmax(Storage storage, const LogSoftmaxCall& call, CUstream_st* stream);
void gated(Storage storage, const GatedCall& call, CUstream_st* stream);
void soft_cap(Storage storage, const SoftCapCall& call, CUstream_st* stream);
void rotate(Storage storage, const RotateCall& call, CUstream_st* stream);

/// Attention in stages: what lies between may be looked at, or changed. There is no other way to compute it, so a fused
/// call and the stages cannot differ; a cap within `scores` is the same as `soft_cap` behind it.
void attention_scores(Storage storage, const ScoreCall& call, CUstream_st* stream);
void attention_softmax(Storage storage, const SoftmaxCall& call, CUstream_st* stream);
void attention_mix(Storage storage, const MixCall& call, CUstream_st* stream);
std::size_t mix_workspace_bytes(Storage storage, const AttentionShape& shape);

/// Multiprocessors of the current device: how tiles are chosen. Asked once for each device.
int n_processors();

}  // namespace kvdiv::cuda
