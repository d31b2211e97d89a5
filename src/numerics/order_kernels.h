#pragma once
// Dot products of rows with kTileColumns columns at once, in a reduction spec's order: a lane is a column, so that
// vectors change no column's order and no result.
#include <cstddef>
#include <cstdint>

#include "kvdiv/numerics/reduction.h"

namespace kvdiv {

inline constexpr std::size_t kTileColumns = 16;

/// Rows `row_step` elements apart, each with kTileColumns columns that lie side by side.
template <class T>
struct TileCall {
  const T* x;     ///< [n_rows][n_terms]
  const T* tile;  ///< [n_terms][kTileColumns]
  T* out;         ///< [n_rows][kTileColumns]
  std::size_t n_rows, n_terms, row_step;
};

/// out[r][c] = Σₖ x[r][k]·tile[k][c] as ordered_dot defines it: bit for bit the same, on every CPU and with every vector
/// width (but for the payload of a NaN). Operands are FP32 or less; the result is the accumulator.
void ordered_tile(const TileCall<float>& call, const ReductionSpec& spec);
/// The same for float64 storage.
void ordered_tile(const TileCall<double>& call, const ReductionSpec& spec);

/// The instruction sets that were compiled and that this CPU has, as Highway's bits: what a test goes through.
std::int64_t vector_targets();

}  // namespace kvdiv
