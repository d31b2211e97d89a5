#pragma once
// The kernels of the invariant backend: plain pointers in, plain pointers out. Every sum has one order, which is a matter
// of the number of its terms alone: not of how many rows are computed together, of threads, or of the vector width.
//
//   linear     term after term, k ascending, one fused multiply-add each, into one FP32 accumulator
//   q·k, Σx², Σexp   sixteen lanes, term i in lane i mod 16, each lane ascending; then neighbours added: 8, 4, 2, 1
//   weights·v  key after key, the first visible one first, one fused multiply-add each; weights of exactly 0 are left out
//
// Storage is FP16, BF16, FP32 or FP64; what is accumulated is FP32, or FP64 for FP64. A product of two 16-bit numbers is
// exact in FP32, so the only roundings are those of the additions. exp, log and tanh are Highway's, computed in full vectors
// always (a short rest is padded), so that they depend on nothing but their argument.
#include <cstdint>
#include <string>
#include <vector>

namespace kvdiv {

enum class Storage { float16, bfloat16, float32, float64 };

/// Columns of a packed weight that lie together: [⌈N/32⌉][K][32], the last block padded with zeros.
inline constexpr std::int64_t kPackedColumns = 32;

/// Rows that attention computes with: a head's keys or values widened to FP32 (FP64), rows padded with zeros to a multiple
/// of 16, so that no load needs a mask.
constexpr std::int64_t padded_row(std::int64_t n) { return (n + 15) / 16 * 16; }

struct LinearCall {
  const void* panels;  ///< packed rows: KernelTable::pack_rows
  const void* weight;  ///< packed weight
  void* y;             ///< [M,N] in the storage type
  std::int64_t M = 0, N = 0, K = 0;
};

struct NormCall {
  const void *x, *weight;  ///< a row [C], the weight [C]
  void* y;
  std::int64_t C = 0;
  double eps = 0.0, offset = 0.0;
  bool round_before_weight = true;
};

/// Scores of one query row, widened: rounded to the storage type after the product, the scale, and each step of the cap.
struct ScoreCall {
  const void* q;     ///< [padded D]
  const void* keys;  ///< [n][padded D]
  void* scores;      ///< [n], room for padded_row(n)
  std::int64_t n = 0, D = 0;
  double scale = 1.0;
  double cap = 0.0;  ///< 0: none
};

struct MixCall {
  const void* weights;  ///< [n]
  const void* values;   ///< [n][padded D]
  void* out;            ///< [D] in the storage type
  std::int64_t n = 0, D = 0;
};

/// One instruction set's kernels. Functions take rows or ranges, so that callers can spread them over threads.
struct KernelTable {
  const char* name = "";
  std::int64_t panel_rows = 0;  ///< rows that a tile of `linear` computes at once
  bool has_fma = false;         ///< without it the sums would round twice: such a table is not used

  /// Bytes of the panels of M rows.
  std::int64_t (*panel_bytes)(Storage, std::int64_t M, std::int64_t K) = nullptr;
  /// Rows x [M,K], `row_stride` elements apart, into the widened panels [first, last).
  void (*pack_rows)(Storage, const void* x, std::int64_t row_stride, std::int64_t M, std::int64_t K, std::int64_t first,
                    std::int64_t last, void* panels) = nullptr;
  /// The column blocks [first, last) of y.
  void (*linear)(Storage, const LinearCall&, std::int64_t first, std::int64_t last) = nullptr;

  void (*rms_norm)(Storage, const NormCall&) = nullptr;
  /// `n` elements widened, and zeros up to `padded`.
  void (*widen)(Storage, const void* x, std::int64_t n, std::int64_t padded, void* out) = nullptr;
  /// `n` widened elements rounded to the storage type.
  void (*narrow)(Storage, const void* x, std::int64_t n, void* out) = nullptr;
  void (*products)(Storage, const ScoreCall&) = nullptr;  ///< q·k, rounded, scaled, rounded
  void (*cap_scores)(Storage, const ScoreCall&) = nullptr;
  /// In place: exp(s − max)/Σ, rounded to the storage type. Room for padded_row(n).
  void (*softmax)(Storage, void* scores, std::int64_t n) = nullptr;
  void (*mix)(Storage, const MixCall&) = nullptr;
  /// x [n] in the storage type → widened results [n].
  void (*log_softmax)(Storage, const void* x, std::int64_t n, void* out) = nullptr;
  void (*silu_times)(Storage, const void* gate, const void* up, std::int64_t n, void* out) = nullptr;
  void (*gelu_times)(Storage, const void* gate, const void* up, std::int64_t n, void* out) = nullptr;
  void (*soft_cap)(Storage, const void* x, double cap, std::int64_t n, void* out) = nullptr;
  /// Independent multiply-adds in registers only, for the benchmark: returns the operations done (2 per multiply-add).
  double (*register_flops)(std::int64_t n_rounds, float* sink) = nullptr;
  /// Sums `n_bytes` (a multiple of 256): what reading memory costs, for the benchmark.
  double (*read_bytes)(const void* data, std::int64_t n_bytes) = nullptr;
};

/// The table of the widest instruction set that this CPU has, or of the one that KVDIV_KERNELS names (AVX2, AVX3). Throws
/// Error{usage} if it has no fused multiply-add, or not the named set.
const KernelTable& kernels();

/// Names of the tables that this CPU can run, widest first, and one of them. For tests and measurements.
std::vector<std::string> kernel_names();
const KernelTable& kernels_named(const std::string& name);

}  // namespace kvdiv
