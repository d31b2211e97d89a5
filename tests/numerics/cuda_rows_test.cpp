// The GPU's norms, log softmax and elementwise functions, in the emulator.
#include "support/emulated.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/rows.cuh"

namespace kvdiv::test {
namespace {

using device::narrow;
using device::widen;

template <class T>
Wide<T> rounded(Wide<T> x) {
  return widen(narrow<T>(x));
}

/// The tree of kernels.h over lanes that are already summed.
template <class W>
W tree(const std::vector<W>& lanes) {
  W total = 0;
  for (std::size_t warp = 0; warp < lanes.size() / 32; ++warp) {
    std::vector<W> mine(lanes.begin() + static_cast<std::ptrdiff_t>(32 * warp),
                        lanes.begin() + static_cast<std::ptrdiff_t>(32 * warp + 32));
    for (std::size_t apart = 16; apart > 0; apart /= 2)
      for (std::size_t i = 0; i < apart; ++i) mine[i] = mine[i] + mine[i + apart];
    total = warp == 0 ? mine[0] : total + mine[0];
  }
  return total;
}

template <class T>
class CudaRows : public testing::Test {};
using Types = testing::Types<Half, BFloat, float, double>;
TYPED_TEST_SUITE(CudaRows, Types);

constexpr std::int64_t kPadding = 3;

/// Rows of `C` with a gap between them.
template <class T>
std::vector<T> rows(std::int64_t M, std::int64_t C, std::uint64_t seed, double size = 1.0) {
  return random_numbers<T>(static_cast<std::size_t>(M * (C + kPadding)), seed, size);
}

template <class T>
std::vector<T> normed(const std::vector<T>& x, const std::vector<T>& weight, std::int64_t first, std::int64_t n,
                      double offset, bool before, std::uint64_t seed = 1) {
  const auto C = static_cast<std::int64_t>(weight.size());
  std::vector<T> y(static_cast<std::size_t>(n * C));
  device::launch_rms_norm<T>({x.data() + first * (C + kPadding), weight.data(), y.data(), C + kPadding, n, C, 1e-5, offset,
                              before},
                             Emulated{seed});
  return y;
}

template <class T>
std::vector<T> expected_norm(const T* x, const std::vector<T>& weight, double offset, bool before) {
  using W = Wide<T>;
  std::vector<W> lanes(256, W{0});
  const std::size_t C = weight.size();
  for (std::size_t i = 0; i < C; ++i) lanes[i % 256] = std::fma(widen(x[i]), widen(x[i]), lanes[i % 256]);
  const W scale = W{1} / std::sqrt(tree(lanes) / static_cast<W>(C) + static_cast<W>(1e-5));
  std::vector<T> y;
  for (std::size_t i = 0; i < C; ++i) {
    const W gain = widen(weight[i]) + static_cast<W>(offset), scaled = widen(x[i]) * scale;
    y.push_back(narrow<T>(before ? rounded<T>(gain) * rounded<T>(scaled) : scaled * gain));
  }
  return y;
}

TYPED_TEST(CudaRows, ANormIsTheDocumentedSum) {
  using T = TypeParam;
  for (const std::int64_t C : {8, 200, 256, 1000})
    for (const double offset : {0.0, 1.0})
      for (const bool before : {true, false}) {
        const auto x = rows<T>(3, C, 1), weight = random_numbers<T>(static_cast<std::size_t>(C), 2, 0.2, 1.0);
        const auto all = normed(x, weight, 0, 3, offset, before);
        for (std::int64_t m = 0; m < 3; ++m) {
          const auto expected = expected_norm(x.data() + m * (C + kPadding), weight, offset, before);
          EXPECT_TRUE(same_bits(all.data() + m * C, expected.data(), expected.size())) << C << " " << offset << before;
          EXPECT_TRUE(same_bits(normed(x, weight, m, 1, offset, before, 5 + static_cast<std::uint64_t>(m)), expected));
        }
      }
}

TYPED_TEST(CudaRows, ANormMeetsFp64) {
  using T = TypeParam;
  const std::int64_t C = 512;
  const auto x = rows<T>(1, C, 1), weight = random_numbers<T>(static_cast<std::size_t>(C), 2, 0.2, 1.0);
  const auto y = doubles(normed(x, weight, 0, 1, 0.0, true)), X = doubles(x), W = doubles(weight);
  long double square = 0.0L;
  for (std::size_t i = 0; i < 512; ++i) square += static_cast<long double>(X[i]) * X[i];
  double worst = 0.0;
  for (std::size_t i = 0; i < 512; ++i) {
    const auto exact = static_cast<double>(X[i] / std::sqrt(square / 512 + 1e-5L) * W[i]);
    worst = std::max(worst, std::abs(y[i] - exact) / std::abs(exact));
  }
  EXPECT_LT(worst, 8 * unit_roundoff<T>());
  EXPECT_GT(worst, 0.5 * unit_roundoff<T>());
}

template <class T>
std::vector<Wide<T>> log_softmax(const std::vector<T>& x, std::int64_t C, std::int64_t first, std::int64_t n,
                                 std::uint64_t seed = 1) {
  std::vector<Wide<T>> y(static_cast<std::size_t>(n * C));
  device::launch_log_softmax<T>({x.data() + first * (C + kPadding), y.data(), C + kPadding, n, C}, Emulated{seed});
  return y;
}

TYPED_TEST(CudaRows, ALogSoftmaxIsTheDocumentedSum) {
  using T = TypeParam;
  using W = Wide<T>;
  for (const std::int64_t C : {1, 31, 256, 1300}) {
    const auto x = rows<T>(2, C, 3, 4.0);
    const auto all = log_softmax(x, C, 0, 2);
    for (std::int64_t m = 0; m < 2; ++m) {
      std::vector<W> row;
      for (std::int64_t i = 0; i < C; ++i) row.push_back(widen(x[static_cast<std::size_t>(m * (C + kPadding) + i)]));
      const W largest = *std::max_element(row.begin(), row.end());
      std::vector<W> lanes(256, W{0}), expected;
      for (std::size_t i = 0; i < row.size(); ++i) lanes[i % 256] += std::exp(row[i] - largest);
      for (const W v : row) expected.push_back(v - largest - std::log(tree(lanes)));
      EXPECT_TRUE(same_bits(all.data() + m * C, expected.data(), expected.size())) << C;
      EXPECT_TRUE(same_bits(log_softmax(x, C, m, 1, 4), expected)) << C;
      double total = 0.0;
      for (const W v : expected) total += std::exp(static_cast<double>(v));
      EXPECT_NEAR(total, 1.0, sizeof(W) == 8 ? 1e-13 : 1e-5);
    }
  }
}

TYPED_TEST(CudaRows, TheScheduleDecidesNothing) {
  const auto x = rows<TypeParam>(1, 600, 3, 4.0), weight = random_numbers<TypeParam>(600, 2);
  const auto first = log_softmax(x, 600, 0, 1, 0);
  const auto first_norm = normed(x, weight, 0, 1, 0.0, true, 0);
  for (std::uint64_t seed = 1; seed < 10; ++seed) {
    EXPECT_TRUE(same_bits(first, log_softmax(x, 600, 0, 1, seed)));
    EXPECT_TRUE(same_bits(first_norm, normed(x, weight, 0, 1, 0.0, true, seed)));
  }
}

TYPED_TEST(CudaRows, GatedRoundsAfterTheActivationAndAfterTheProduct) {
  using T = TypeParam;
  using W = Wide<T>;
  const std::int64_t C = 1500;  // two blocks a row, the second not full
  const auto gate = rows<T>(2, C, 1, 3.0), up = rows<T>(2, C, 2);
  for (const auto kind : {cuda::GatedKind::silu, cuda::GatedKind::gelu_tanh}) {
    std::vector<T> y(static_cast<std::size_t>(2 * C)), expected;
    device::launch_gated<T>({gate.data(), up.data(), y.data(), C + kPadding, C + kPadding, 2, C, kind}, Emulated{});
    double worst = 0.0;
    for (std::int64_t m = 0; m < 2; ++m)
      for (std::int64_t i = 0; i < C; ++i) {
        const auto at = static_cast<std::size_t>(m * (C + kPadding) + i);
        const W x = widen(gate[at]);
        const W inner = static_cast<W>(0.79788456080286535588) * std::fma(static_cast<W>(0.044715), x * x * x, x);
        const W activated =
            kind == cuda::GatedKind::silu ? x / (1 + std::exp(-x)) : static_cast<W>(0.5) * x * (1 + std::tanh(inner));
        expected.push_back(narrow<T>(rounded<T>(activated) * widen(up[at])));
        // Beside |x|, for 1 + tanh cancels: there the accumulator's own rounding shows.
        const long double X = x, up_exact = widen(up[at]);
        const long double exact = kind == cuda::GatedKind::silu
                                      ? X / (1 + std::exp(-X))
                                      : X / 2 * (1 + std::tanh(0.79788456080286535588L * (X + 0.044715L * X * X * X)));
        const long double error = std::abs(widen(expected.back()) - exact * up_exact);
        worst = std::max(worst, static_cast<double>(error / (std::abs(X * up_exact) + 1e-3L)));
      }
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_LT(worst, 6 * unit_roundoff<T>());
    EXPECT_GT(worst, 0.2 * unit_roundoff<T>());
  }
}

TYPED_TEST(CudaRows, SiluOfTheExtremesIsRight) {
  using T = TypeParam;
  const std::vector<T> gate{narrow<T>(-60000), narrow<T>(60000), narrow<T>(0), narrow<T>(-120)};
  const std::vector<T> up(4, narrow<T>(1));
  std::vector<T> y(4);
  device::launch_gated<T>({gate.data(), up.data(), y.data(), 4, 4, 1, 4, cuda::GatedKind::silu}, Emulated{});
  EXPECT_EQ(widen(y[0]), 0);
  EXPECT_EQ(widen(y[1]), widen(gate[1]));
  EXPECT_EQ(widen(y[2]), 0);
  EXPECT_LE(widen(y[3]), 0);
}

TYPED_TEST(CudaRows, ASoftCapRoundsAfterEachStep) {
  using T = TypeParam;
  using W = Wide<T>;
  const auto x = random_numbers<T>(1500, 5, 60.0);
  std::vector<T> y(x.size()), expected;
  device::launch_soft_cap<T>({x.data(), y.data(), 1500, 50.0}, Emulated{});
  for (const T v : x)
    expected.push_back(narrow<T>(rounded<T>(std::tanh(rounded<T>(widen(v) / W{50}))) * W{50}));
  EXPECT_TRUE(same_bits(y, expected));
}

TYPED_TEST(CudaRows, ARotationRoundsItsProductsAndTheirSum) {
  using T = TypeParam;
  using W = Wide<T>;
  const std::int64_t H = 3, T_ = 5, D = 64;
  // As a projection leaves it: [T,H·D] with a few more elements a position.
  const auto x = random_numbers<T>(static_cast<std::size_t>(T_ * (H * D + 8)), 1);
  const auto cos = random_numbers<T>(static_cast<std::size_t>(T_ * D), 2, 0.5),
             sin = random_numbers<T>(static_cast<std::size_t>(T_ * D), 3, 0.5);
  std::vector<T> y(static_cast<std::size_t>(H * T_ * D)), expected;
  device::launch_rotate<T>({x.data(), cos.data(), sin.data(), y.data(), D, H * D + 8, H, T_, D}, Emulated{});
  for (std::int64_t h = 0; h < H; ++h)
    for (std::int64_t t = 0; t < T_; ++t)
      for (std::int64_t d = 0; d < D; ++d) {
        const auto at = [&](std::int64_t i) { return widen(x[static_cast<std::size_t>(t * (H * D + 8) + h * D + i)]); };
        const auto i = static_cast<std::size_t>(t * D + d);
        const W turned = d < D / 2 ? -at(d + D / 2) : at(d - D / 2);
        expected.push_back(narrow<T>(rounded<T>(at(d) * widen(cos[i])) + rounded<T>(turned * widen(sin[i]))));
      }
  EXPECT_TRUE(same_bits(y, expected));
}

}  // namespace
}  // namespace kvdiv::test
