// The GPU's products, in the emulator: the order of kernels.h bit for bit, and the same bits in all kernels for any
// number of rows.
#include "support/emulated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cuda/linear.cuh"

namespace kvdiv::test {
namespace {

using cuda::LinearCall;
using device::LinearKind;

constexpr std::int64_t kPadding = 8;  // elements between rows of x

/// Products that cancel: each term's opposite stands somewhere else in K, so that the exact sum is 0 and what is left
/// is the rounding of the order. Otherwise a 16-bit result would hide most changes of an FP32 sum.
enum class Terms { cancel, plain };

template <class T>
struct Problem {
  std::int64_t M, N, K;
  std::vector<T> x, w;

  Problem(std::int64_t rows, std::int64_t columns, std::int64_t terms, Terms kind = Terms::cancel)
      : M(rows),
        N(columns),
        K(terms),
        x(random_numbers<T>(static_cast<std::size_t>(rows * (terms + kPadding)), 1, kind == Terms::cancel ? 30 : 1)),
        w(random_numbers<T>(static_cast<std::size_t>(columns * terms), 2, kind == Terms::cancel ? 30 : 1)) {
    if (kind == Terms::plain) return;
    std::vector<std::size_t> order(static_cast<std::size_t>(K));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
    for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
      for (std::size_t m = 0; m < x.size(); m += static_cast<std::size_t>(K + kPadding))
        x[m + order[i]] = x[m + order[i + 1]];
      for (std::size_t n = 0; n < w.size(); n += static_cast<std::size_t>(K))
        w[n + order[i]] = device::narrow<T>(-device::widen(w[n + order[i + 1]]));
    }
  }

  /// Rows [first, first + n) by the kernel of `kind`.
  std::vector<T> product(LinearKind kind, std::int64_t first, std::int64_t n, std::uint64_t seed = 1) const {
    std::vector<T> y(static_cast<std::size_t>(n * N));
    const LinearCall call{x.data() + first * (K + kPadding), w.data(), y.data(), K + kPadding, n, N, K};
    Emulated launch{seed};
    if constexpr (sizeof(T) == 2)
      device::launch_linear<T>(kind, call, launch);
    else
      device::launch_wide_linear<T>(call, launch);
    return y;
  }

  /// The order of kernels.h, in plain loops.
  std::vector<T> expected() const {
    std::vector<T> y;
    for (std::int64_t m = 0; m < M; ++m)
      for (std::int64_t n = 0; n < N; ++n) {
        Wide<T> total = 0;
        for (std::int64_t first = 0; first < K; first += 512) {
          Wide<T> sum = 0;
          for (std::int64_t k = first; k < std::min(first + 512, K); ++k)
            sum = std::fma(device::widen(w[static_cast<std::size_t>(n * K + k)]),
                           device::widen(x[static_cast<std::size_t>(m * (K + kPadding) + k)]), sum);
          total = total + sum;
        }
        y.push_back(device::narrow<T>(total));
      }
    return y;
  }
};

/// Rows [first, first + n) of `all`, as `kind` computes them, against those of all.
template <class T>
void expect_rows(const Problem<T>& problem, const std::vector<T>& all, LinearKind kind, std::int64_t first,
                 std::int64_t n, std::uint64_t seed = 1) {
  const auto y = problem.product(kind, first, n, seed);
  EXPECT_TRUE(same_bits(y.data(), all.data() + first * problem.N, y.size()))
      << "kind " << static_cast<int>(kind) << ", rows " << first << " + " << n << ", seed " << seed;
}

template <class T>
class CudaLinear : public testing::Test {};
using Types = testing::Types<Half, BFloat, float, double>;
TYPED_TEST_SUITE(CudaLinear, Types);
template <class T>
class CudaLinear16 : public testing::Test {};
using Types16 = testing::Types<Half, BFloat>;
TYPED_TEST_SUITE(CudaLinear16, Types16);

constexpr LinearKind kKinds[] = {LinearKind::rows8, LinearKind::rows16, LinearKind::small_tiles,
                                 LinearKind::medium_tiles, LinearKind::large_tiles, LinearKind::huge_tiles};

/// Tiles and chunks that are not full, everywhere.
TYPED_TEST(CudaLinear, AnyNumberOfRowsGivesTheDocumentedBits) {
  const Problem<TypeParam> problem(200, 43, 576);
  const auto all = problem.expected();
  for (const std::int64_t n : {1, 2, 7, 8, 9, 33, 64, 130, 200}) {
    const auto kind = device::choose_linear(n, problem.N, 4);
    expect_rows(problem, all, kind, 0, n);
    if (n < 200) expect_rows(problem, all, kind, 200 - n, n, 2);  // other places of a tile
  }
}

TYPED_TEST(CudaLinear16, AllKernelsGiveTheSameBits) {
  const Problem<TypeParam> problem(21, 130, 640);
  const auto all = problem.expected();
  for (const auto kind : kKinds)
    for (const std::int64_t n : {1, 8, 21}) expect_rows(problem, all, kind, 0, n);
  const Problem<TypeParam> tall(200, 10, 576);  // more rows than a tile has
  const auto all_of_tall = tall.expected();
  for (const auto kind : kKinds) expect_rows(tall, all_of_tall, kind, 0, 200);
}

TYPED_TEST(CudaLinear16, AllKernelsAddManyChunksAscending) {
  // Twenty chunks: three rounds of eight warps, the last one short, and its last chunk too.
  const Problem<TypeParam> deep(3, 20, 19 * 512 + 192);
  const auto all_of_deep = deep.expected();
  for (const auto kind : {LinearKind::rows8, LinearKind::rows16, LinearKind::small_tiles})
    expect_rows(deep, all_of_deep, kind, 0, 3);
  const Problem<TypeParam> flat(3, 20, 3 * 512 + 192);
  const auto all_of_flat = flat.expected();
  for (const auto kind : kKinds) expect_rows(flat, all_of_flat, kind, 0, 3);
}

TYPED_TEST(CudaLinear, ShortAndLongRows) {
  for (const std::int64_t K : {64, 128, 512, 2176, 5184}) {
    const Problem<TypeParam> problem(10, 16, K);
    const auto all = problem.expected();
    for (const std::int64_t n : {1, 10}) expect_rows(problem, all, LinearKind::rows16, 0, n);
  }
}

/// Whoever runs first: a missing barrier or wait would show.
TYPED_TEST(CudaLinear, TheScheduleDecidesNothing) {
  const Problem<TypeParam> deep(9, 24, 4736), flat(9, 24, 704);
  const auto all_of_deep = deep.expected(), all_of_flat = flat.expected();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    if (seed < 4) expect_rows(deep, all_of_deep, LinearKind::rows8, 0, seed % 2 == 0 ? 9 : 1, seed);
    if constexpr (sizeof(TypeParam) == 2)
      expect_rows(flat, all_of_flat, kKinds[seed % std::size(kKinds)], 0, 9, seed);
  }
}

TYPED_TEST(CudaLinear, ItsRoundingIsThatOfASumOfItsLength) {
  const Problem<TypeParam> problem(8, 32, 1024, Terms::plain);
  const auto y = doubles(problem.product(LinearKind::rows8, 0, 8));
  const auto X = doubles(problem.x), W = doubles(problem.w);
  double worst = 0.0;
  for (std::int64_t m = 0; m < 8; ++m)
    for (std::int64_t n = 0; n < 32; ++n) {
      long double exact = 0.0L, size = 0.0L;
      for (std::int64_t k = 0; k < 1024; ++k) {
        const long double term = static_cast<long double>(X[static_cast<std::size_t>(m * (1024 + kPadding) + k)]) *
                                 W[static_cast<std::size_t>(n * 1024 + k)];
        exact += term;
        size += std::abs(term);
      }
      const auto error = static_cast<double>(std::abs(y[static_cast<std::size_t>(m * 32 + n)] - exact));
      // Chains of 512, two of them, then the storage type.
      const double in_sum = 514 * (sizeof(TypeParam) == 8 ? 0x1p-53 : 0x1p-24) * static_cast<double>(size);
      const double at_end = sizeof(TypeParam) == 2 ? unit_roundoff<TypeParam>() * static_cast<double>(std::abs(exact)) : 0;
      EXPECT_LE(error, in_sum + at_end * 1.01 + 0x1p-25);
      worst = std::max(worst, error);
    }
  EXPECT_GT(worst, unit_roundoff<TypeParam>());  // sums of size 32 leave a trace
}

TEST(CudaLinearChoice, FollowsTheNumberOfRows) {
  const auto choose = [](std::int64_t M, std::int64_t N) { return device::choose_linear(M, N, 132); };
  EXPECT_EQ(choose(1, 4096), LinearKind::rows8);
  EXPECT_EQ(choose(8, 128256), LinearKind::rows8);
  EXPECT_EQ(choose(9, 4096), LinearKind::rows16);
  EXPECT_EQ(choose(17, 4096), LinearKind::small_tiles);
  EXPECT_EQ(choose(128, 4096), LinearKind::small_tiles);
  EXPECT_EQ(choose(64, 28672), LinearKind::medium_tiles);
  EXPECT_EQ(choose(1000, 4096), LinearKind::large_tiles);
  EXPECT_EQ(choose(2048, 14336), LinearKind::huge_tiles);
}

TEST(CudaLinearChoice, AWrongCallIsNamed) {
  const std::vector<Half> x(1024), w(1024);
  std::vector<Half> y(16);
  const LinearCall good{x.data(), w.data(), y.data(), 64, 1, 16, 64};
  const auto launch = [](const LinearCall& call) { device::launch_linear<Half>(LinearKind::rows8, call, Emulated{}); };
  EXPECT_NO_THROW(launch(good));
  const auto with = [&](auto change) {
    LinearCall call = good;
    change(call);
    return call;
  };
  EXPECT_THROW(launch(with([](LinearCall& c) { c.K = 48; })), Error);
  EXPECT_THROW(launch(with([](LinearCall& c) { c.x_stride = 65; })), Error);
  EXPECT_THROW(launch(with([&](LinearCall& c) { c.x = x.data() + 1; })), Error);
  EXPECT_THROW(launch(with([&](LinearCall& c) { c.w = w.data() + 4; })), Error);
}

TEST(CudaLinearChoice, SharedMemoryFitsTheSmallerGpu) {
  constexpr std::size_t kLimit = 163 * 1024;  // of a block on sm_80
  const LinearCall call{nullptr, nullptr, nullptr, 4096, 16, 4096, 4096};
  for (const auto& g : {device::rows_geometry<1>(call), device::rows_geometry<2>(call),
                        device::tiled_geometry<device::HugeTiles>(call), device::wide_geometry<float, 8>(call),
                        device::wide_geometry<double, 8>(call)})
    EXPECT_LE(g.shared_bytes, kLimit);
  LinearCall one = call;
  one.M = 1;
  EXPECT_LE(2 * (device::rows_geometry<1>(one).shared_bytes + 1024), kLimit + 1024);  // two blocks an SM
}

}  // namespace
}  // namespace kvdiv::test
