// The emulator itself: it carries out what the PTX manual says, and it finds what kernels must not leave to luck.
#include "support/cuda_emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "kvdiv/numerics/half.h"

namespace kvdiv::device {
namespace {

using emulator::EmulationError;
using emulator::Launch;

constexpr std::uint64_t kSeeds = 12;

Launch one_block(int threads, std::size_t shared_bytes, std::uint64_t seed) {
  return {.threads = threads, .shared_bytes = shared_bytes, .seed = seed};
}

/// How many different results a kernel has under different seeds.
template <class Kernel>
std::size_t n_results(int threads, std::size_t shared_bytes, Kernel kernel) {
  std::set<std::vector<std::uint32_t>> results;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<std::uint32_t> out(static_cast<std::size_t>(threads), 0);
    emulator::run(one_block(threads, shared_bytes, seed), [&] { kernel(out.data()); });
    results.insert(out);
  }
  return results.size();
}

TEST(CudaEmulator, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> n(3 * 2 * 2 * 96, 0);
  emulator::run({.grid_x = 3, .grid_y = 2, .grid_z = 2, .threads = 96}, [&] {
    const int block = block_x() + 3 * (block_y() + 2 * block_z());
    ++n[static_cast<std::size_t>(block * block_threads() + thread_x())];
  });
  EXPECT_THAT(n, testing::Each(1));
}

/// Threads hand numbers to each other through shared memory.
template <bool kBarrier>
void pass_around(std::uint32_t* out) {
  auto* const numbers = reinterpret_cast<std::uint32_t*>(shared_memory());
  numbers[thread_x()] = static_cast<std::uint32_t>(thread_x());
  if (kBarrier) block_barrier();
  out[thread_x()] = numbers[(thread_x() + 37) % block_threads()];
}

TEST(CudaEmulator, AMissingBarrierIsSeen) {
  EXPECT_EQ(n_results(128, 512, pass_around<true>), 1u);
  EXPECT_GT(n_results(128, 512, pass_around<false>), 1u);
}

/// The same within a warp.
template <bool kBarrier>
void pass_within_warp(std::uint32_t* out) {
  auto* const numbers = reinterpret_cast<std::uint32_t*>(shared_memory());
  numbers[thread_x()] = static_cast<std::uint32_t>(thread_x());
  if (kBarrier) warp_barrier();
  out[thread_x()] = numbers[thread_x() ^ 1];
}

TEST(CudaEmulator, AMissingWarpBarrierIsSeen) {
  EXPECT_EQ(n_results(64, 256, pass_within_warp<true>), 1u);
  EXPECT_GT(n_results(64, 256, pass_within_warp<false>), 1u);
}

const std::array<Bytes16, 64> kSource = [] {
  std::array<Bytes16, 64> out{};
  for (std::uint32_t i = 0; i < 64; ++i) out[i] = {{i, 100 + i, 200 + i, 300 + i}};
  return out;
}();

/// Each thread copies two groups of 16 bytes and reads its own first one.
template <int kLeft>
void copy_and_read(std::uint32_t* out) {
  auto* const there = reinterpret_cast<Bytes16*>(shared_memory());
  const int i = thread_x();
  for (int group = 0; group < 2; ++group) {
    copy_async(&there[2 * i + group], &kSource[static_cast<std::size_t>(i + 32 * group)], 16);
    copy_async_commit();
  }
  copy_async_wait<kLeft>();
  out[i] = there[2 * i].word[2];
}

TEST(CudaEmulator, AMissingWaitIsSeen) {
  EXPECT_EQ(n_results(32, 1024, copy_and_read<0>), 1u);
  EXPECT_EQ(n_results(32, 1024, copy_and_read<1>), 1u);
  EXPECT_GT(n_results(32, 1024, copy_and_read<2>), 1u);
}

/// A buffer that is filled again before all have read it: copies that come at once show it.
template <bool kBarrier>
void fill_again(std::uint32_t* out) {
  auto* const there = reinterpret_cast<Bytes16*>(shared_memory());
  const int i = thread_x();
  std::uint32_t sum = 0;
  for (int round = 0; round < 2; ++round) {
    copy_async(&there[i], &kSource[static_cast<std::size_t>((i + 5 * round) % 64)], 16);
    copy_async_commit();
    copy_async_wait<0>();
    block_barrier();
    sum += there[(i + 33) % 64].word[0];
    if (kBarrier) block_barrier();
  }
  out[i] = sum;
}

TEST(CudaEmulator, ABufferOverwrittenTooSoonIsSeen) {
  EXPECT_EQ(n_results(64, 1024, fill_again<true>), 1u);
  EXPECT_GT(n_results(64, 1024, fill_again<false>), 1u);
}

TEST(CudaEmulator, ZeroBytesGiveZeros) {
  std::vector<std::uint32_t> out(32, 1);
  emulator::run(one_block(32, 512, 1), [&] {
    auto* const there = reinterpret_cast<Bytes16*>(shared_memory());
    copy_async(&there[thread_x()], kSource.data(), 0);
    copy_async_commit();
    copy_async_wait<0>();
    out[static_cast<std::size_t>(thread_x())] = there[thread_x()].word[3];
  });
  EXPECT_THAT(out, testing::Each(0u));
}

TEST(CudaEmulator, WhatWouldHangIsAnError) {
  EXPECT_THROW(emulator::run(one_block(64, 0, 1), [] { if (thread_x() != 40) block_barrier(); }), EmulationError);
  EXPECT_THROW(emulator::run(one_block(32, 0, 1), [] { if (thread_x() != 4) shuffle_xor(1.0f, 1); }), EmulationError);
  EXPECT_THROW(emulator::run(one_block(32, 0, 1),
                             [] {
                               if (thread_x() < 16)
                                 shuffle_xor(1.0f, 1);
                               else
                                 warp_barrier();
                             }),
               EmulationError);
  EXPECT_THROW(emulator::run(one_block(48, 0, 1), [] {}), EmulationError);
  EXPECT_THROW(thread_x(), EmulationError);
}

TEST(CudaEmulator, AddressesAreChecked) {
  const auto copy = [](std::size_t at, int from) {
    return [=] { copy_async(shared_memory() + at, reinterpret_cast<const char*>(kSource.data()) + from, 16); };
  };
  EXPECT_NO_THROW(emulator::run(one_block(32, 512, 1), copy(496, 16)));
  EXPECT_THROW(emulator::run(one_block(32, 512, 1), copy(512, 16)), EmulationError);
  EXPECT_THROW(emulator::run(one_block(32, 512, 1), copy(8, 16)), EmulationError);
  EXPECT_THROW(emulator::run(one_block(32, 512, 1), copy(16, 2)), EmulationError);
}

TEST(CudaEmulator, AShuffleExchanges) {
  std::vector<double> got(32);
  emulator::run(one_block(32, 0, 3),
                [&] { got[static_cast<std::size_t>(thread_x())] = shuffle_xor(thread_x() + 0.5, 5); });
  for (int l = 0; l < 32; ++l) EXPECT_EQ(got[static_cast<std::size_t>(l)], (l ^ 5) + 0.5);
}

/// The product of a row-major 16×16 and a column-major 16×8 matrix in shared memory, by way of ldmatrix; transposed: A
/// lies there by columns.
template <class T, bool kTransposed>
std::vector<float> tile_product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> c(128);
  emulator::run(one_block(32, (256 + 256) * 2, 5), [&] {
    const int l = thread_x();
    T* const A = reinterpret_cast<T*>(shared_memory());
    T* const B = A + 256;  // sixteen columns: the second eight are zeros
    for (int i = l; i < 256; i += 32) {
      A[kTransposed ? i % 16 * 16 + i / 16 : i] = narrow<T>(a[static_cast<std::size_t>(i)]);
      B[i] = narrow<T>(i < 128 ? b[static_cast<std::size_t>(i % 16 * 8 + i / 16)] : 0.0f);
    }
    warp_barrier();
    std::uint32_t fa[4], fb[4];
    // Matrices in the order of A's registers: rows 0–7 and 8–15 of the first eight columns, then of the others.
    if (kTransposed)
      load_matrices_transposed(fa, A + (l % 8 + l / 16 * 8) * 16 + l / 8 % 2 * 8);
    else
      load_matrices(fa, A + (l % 8 + l / 8 % 2 * 8) * 16 + l / 16 * 8);
    load_matrices(fb, B + (l % 8 + l / 16 * 8) * 16 + l / 8 % 2 * 8);
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    multiply_add_tile<T>(sum, fa, fb[0], fb[1]);
    for (int i = 0; i < 4; ++i) c[static_cast<std::size_t>((l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2)] = sum[i];
  });
  return c;
}

TEST(CudaEmulator, ATileProductIsTheProduct) {
  std::vector<float> a(256), b(128), expected(128, 0.0f);
  for (std::size_t i = 0; i < 256; ++i) a[i] = static_cast<float>(static_cast<int>(i * 7 % 31) - 15);
  for (std::size_t i = 0; i < 128; ++i) b[i] = static_cast<float>(static_cast<int>(i * 5 % 17) - 8) / 4;
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t c = 0; c < 8; ++c)
      for (std::size_t k = 0; k < 16; ++k) expected[r * 8 + c] += a[r * 16 + k] * b[k * 8 + c];  // exact
  EXPECT_EQ((tile_product<Half, false>(a, b)), expected);
  EXPECT_EQ((tile_product<Half, true>(a, b)), expected);
  EXPECT_EQ((tile_product<BFloat, false>(a, b)), expected);
  EXPECT_EQ((tile_product<BFloat, true>(a, b)), expected);
}

/// Every half survives, and numbers between two go to the nearer, ties to even.
TEST(CudaEmulator, ConversionsRoundToNearestEven) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float x = widen(half);
    if (std::isnan(x)) continue;
    ASSERT_EQ(narrow<Half>(x).bits, bits);
    ASSERT_EQ(x, round_to_half(x));
    const BFloat bfloat{static_cast<std::uint16_t>(bits)};
    const float y = widen(bfloat);
    if (std::isnan(y)) continue;
    ASSERT_EQ(narrow<BFloat>(y).bits, bits);
  }
  EXPECT_EQ(widen(narrow<Half>(2049.0f)), 2048.0f);
  EXPECT_EQ(widen(narrow<Half>(2051.0f)), 2052.0f);
  EXPECT_EQ(widen(narrow<BFloat>(257.0f)), 256.0f);
  EXPECT_EQ(widen(narrow<BFloat>(259.0f)), 260.0f);
  EXPECT_TRUE(std::isinf(widen(narrow<Half>(65520.0f))));
  EXPECT_EQ(widen(narrow<Half>(-0x1p-24f * 0.75f)), -0x1p-24f);
}

}  // namespace
}  // namespace kvdiv::device
