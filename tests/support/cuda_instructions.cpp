// The instructions of a warp, and conversions.
#include <bit>
#include <vector>

#include "kvdiv/numerics/half.h"
#include "support/cuda_emulator.h"

namespace kvdiv::emulator {
namespace {

constexpr std::size_t kWarp = device::kWarp;

template <bool kTransposed>
void load_matrices_of(void* const* lanes) {
  const auto lane = [&](std::size_t l) { return static_cast<MatrixLane*>(lanes[l]); };
  for (std::size_t m = 0; m < 4; ++m) {
    std::uint16_t matrix[8][8];
    for (std::size_t r = 0; r < 8; ++r) {
      const void* const row = lane(8 * m + r)->row;
      require(reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "ldmatrix: a row that is not aligned");
      require(is_shared(row, 16), "ldmatrix: a row that is not in shared memory");
      std::memcpy(matrix[r], row, 16);
    }
    for (std::size_t l = 0; l < kWarp; ++l) {
      const std::size_t i = l / 4, j = 2 * (l % 4);
      const std::uint32_t low = kTransposed ? matrix[j][i] : matrix[i][j];
      const std::uint32_t high = kTransposed ? matrix[j + 1][i] : matrix[i][j + 1];
      lane(l)->out[m] = low | high << 16;
    }
  }
}

// Most of a test's time is spent here: with the CPU's own instruction where it has one, which gives the same bits.
// (Not under ThreadSanitizer: which clone is taken is decided before it has begun.)
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("fma", "default")))
#endif
void add_products(const float (&a)[16][16], const float (&b)[16][8], float (&c)[16][8]) {
  for (std::size_t row = 0; row < 16; ++row) {
    float sum[8];  // of its own: the compiler need not fear that it overlaps b
    std::memcpy(sum, c[row], sizeof(sum));
    for (std::size_t k = 0; k < 16; ++k)
      for (std::size_t column = 0; column < 8; ++column) sum[column] = std::fma(a[row][k], b[k][column], sum[column]);
    std::memcpy(c[row], sum, sizeof(sum));
  }
}

/// The fragments of mma.m16n8k16: with g = lane / 4 and t = lane mod 4, register i of A holds rows g + 8(i mod 2),
/// columns 2t + 8(i / 2) and the next; register i of B rows 2t + 8i and the next of column g; c0, c1 are row g, columns
/// 2t and 2t + 1, c2, c3 row g + 8.
template <class T>
void multiply_add(void* const* lanes) {
  float a[16][16], b[16][8];
  const auto lane = [&](std::size_t l) { return static_cast<TileLane*>(lanes[l]); };
  const auto element = [](std::uint32_t pair, std::size_t i) {
    return device::widen(T{static_cast<std::uint16_t>(pair >> (16 * i))});
  };
  for (std::size_t l = 0; l < kWarp; ++l) {
    const std::size_t g = l / 4, t = l % 4;
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t e = 0; e < 2; ++e) a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + e] = element(lane(l)->a[i], e);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t e = 0; e < 2; ++e) b[2 * t + 8 * i + e][g] = element(lane(l)->b[i], e);
  }
  float c[16][8];
  const auto for_outputs = [&](auto f) {
    for (std::size_t l = 0; l < kWarp; ++l)
      for (std::size_t i = 0; i < 4; ++i) f(lane(l)->c[i], c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]);
  };
  for_outputs([](float mine, float& place) { place = mine; });
  add_products(a, b, c);
  for_outputs([](float& mine, float place) { mine = place; });
}

}  // namespace

void load_matrices(void* const* lanes) { load_matrices_of<false>(lanes); }
void load_matrices_transposed(void* const* lanes) { load_matrices_of<true>(lanes); }
void multiply_add_half(void* const* lanes) { multiply_add<device::Half>(lanes); }
void multiply_add_bfloat(void* const* lanes) { multiply_add<device::BFloat>(lanes); }

float widen_half(std::uint16_t bits) {
  static const std::vector<float> all = [] {
    std::vector<float> out(65536);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int exponent = static_cast<int>(i >> 10 & 31), mantissa = static_cast<int>(i & 1023);
      double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      if (exponent == 31) size = mantissa == 0 ? HUGE_VAL : std::nan("");
      out[i] = static_cast<float>(i >> 15 != 0 ? -size : size);
    }
    return out;
  }();
  return all[bits];
}

std::uint16_t narrow_half(float x) {
  if (std::isnan(x)) return 0x7fff;
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double size = std::fabs(static_cast<double>(round_to_half(x)));
  if (std::isinf(size)) return sign | 0x7c00;
  if (size < kSmallestNormalHalf) return static_cast<std::uint16_t>(sign | static_cast<int>(size / kSmallestHalf));
  const auto bits = std::bit_cast<std::uint64_t>(size);
  return static_cast<std::uint16_t>(sign | ((bits >> 42) - ((1023 - 15) << 10)));
}

}  // namespace kvdiv::emulator
