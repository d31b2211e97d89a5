#pragma once
// What the kernels of `linear` share: tiles of 64 terms in shared memory, and tensor core steps over them.
#include "device_code.h"

namespace kvdiv::device {

/// Terms that are summed into one accumulator.
inline constexpr int kChunk = 512;
/// Terms of a stage of a pipeline: 128 bytes of a row, a whole line of memory.
inline constexpr int kStageTerms = 64;
inline constexpr int kStagesOfChunk = kChunk / kStageTerms;
inline constexpr int kRowBytes = 128;

/// Where 16 bytes of a row of a tile lie: the eight pieces of a row are permuted by the row's number, so that the eight
/// rows that ldmatrix reads at once lie in different banks.
KVDIV_DEVICE int swizzled(int row, int piece) { return row * kRowBytes + ((piece ^ (row & 7)) << 4); }

/// A 16×16 tile of the 16-row operand: registers as multiply_add_tile wants them. `piece`: 2·(k16 step).
KVDIV_DEVICE void load_row_operand(std::uint32_t (&out)[4], const char* tile, int first_row, int piece, int lane) {
  load_matrices(out, tile + swizzled(first_row + (lane & 15), piece + (lane >> 4)));
}

}  // namespace kvdiv::device
