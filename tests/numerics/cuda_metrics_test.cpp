// The kernels of the step metrics, emulated, against compare_logits() on the host.
#include "support/emulated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/metrics.cuh"
#include "kvdiv/stats/metrics.h"
#include "support/step_metrics.h"

namespace kvdiv::test {
namespace {

using device::kMaxMetricBlocks;
using device::kMetricThreads;
using device::metric_blocks;
using device::metric_workspace_size;
using device::narrow;
using Row = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> stored(const Row& row) {
  std::vector<T> out;
  for (const double x : row) out.push_back(narrow<T>(static_cast<Wide<T>>(x)));
  return out;
}

/// `off` null: one row alone.
template <class T>
StepMetrics emulate(const std::vector<T>& on, const std::vector<T>* off, std::uint64_t seed = 1) {
  const auto V = static_cast<std::int64_t>(on.size());
  std::vector<device::Bytes16> workspace((metric_workspace_size(V) + 15) / 16);
  std::memset(workspace.data(), 0xff, metric_workspace_size(V));  // what it holds before means nothing
  StepMetrics out;
  out.top1_on = -2;
  device::launch_metrics<T>(on.data(), off != nullptr ? off->data() : nullptr, V, workspace.data(), &out,
                            Emulated{seed});
  return out;
}

StepMetrics emulate(const Row& on, const Row& off, std::uint64_t seed = 1) { return emulate<double>(on, &off, seed); }

Row random_row(std::mt19937_64& random, std::size_t n, double scale) {
  std::normal_distribution<double> normal(0.0, scale);
  Row row(n);
  for (double& x : row) x = normal(random);
  return row;
}

Row plus_noise(std::mt19937_64& random, Row row, double scale) {
  const Row noise = random_row(random, row.size(), scale);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] += noise[i];
  return row;
}

TEST(CudaMetrics, AgreeWithTheHostAtEverySizeAndScale) {
  std::mt19937_64 random(3);
  double smallest = kInf, largest = 0.0;
  for (const std::size_t V : {2, 3, 31, 255, 256, 257, 1000, 32000}) {
    for (const double scale : {1e-15, 1e-9, 1e-3, 0.3, 5.0, 400.0}) {
      if (V == 32000 && scale != 1e-3 && scale != 400.0) continue;  // narrow and wide: enough at this size
      SCOPED_TRACE(std::to_string(V) + " logits, noise of " + std::to_string(scale));
      const Row on = random_row(random, V, 1.0), off = plus_noise(random, on, scale);
      const StepMetrics expected = compare_logits(on, off);
      expect_metrics(emulate(on, off), expected);
      smallest = std::min(smallest, expected.kl_on_off_nats);
      largest = std::max(largest, expected.kl_on_off_nats);
    }
  }
  EXPECT_GT(smallest, 0.0);
  EXPECT_LT(smallest, 1e-30);
  EXPECT_GT(largest, 300.0);
}

TEST(CudaMetrics, AThreadMayHaveSeveralTokens) {
  std::mt19937_64 random(4);
  const Row on = random_row(random, 70000, 3.0);  // 256 blocks of 256 threads, and some tokens more
  ASSERT_LT(kMaxMetricBlocks * kMetricThreads, 70000);
  for (const double scale : {1e-6, 250.0}) {
    const Row off = plus_noise(random, on, scale);
    expect_metrics(emulate(on, off), compare_logits(on, off));
  }
}

TEST(CudaMetrics, AVocabularyOfOne) {
  expect_metrics(emulate(Row{3}, Row{4}), compare_logits(Row{3}, Row{4}));
  expect_metrics(emulate(Row{3}, Row{3}), compare_logits(Row{3}, Row{3}));
  expect_metrics(emulate(Row{kNan}, Row{3}), compare_logits(Row{kNan}, Row{3}));
}

TEST(CudaMetrics, EqualRowsAreExactlyZeroApart) {
  std::mt19937_64 random(6);
  for (const std::size_t V : {1, 257, 5000}) {
    const Row row = random_row(random, V, 4.0);
    const StepMetrics m = emulate(row, row);
    EXPECT_EQ(m.kl_on_off_nats, 0.0);
    EXPECT_EQ(m.kl_off_on_nats, 0.0);
    EXPECT_EQ(m.js_nats, 0.0);
    EXPECT_EQ(m.max_abs_dlogit, 0.0);
    EXPECT_TRUE(m.bit_equal);
    EXPECT_TRUE(m.top1_equal);
    EXPECT_EQ(m.n_nonfinite, 0);
  }
}

template <class T>
class CudaMetricsOf : public testing::Test {};
using StorageTypes = testing::Types<Half, BFloat, float, double>;
TYPED_TEST_SUITE(CudaMetricsOf, StorageTypes);

TYPED_TEST(CudaMetricsOf, EveryStorageType) {
  std::mt19937_64 random(8);
  for (const double scale : {0.02, 30.0}) {
    const Row row = random_row(random, 1500, 5.0);
    const auto on = stored<TypeParam>(row), off = stored<TypeParam>(plus_noise(random, row, scale));
    const StepMetrics expected = compare_logits(doubles(on), doubles(off));
    EXPECT_GT(expected.kl_on_off_nats, 1e-5);
    expect_metrics(emulate(on, &off), expected);
  }
}

TYPED_TEST(CudaMetricsOf, SpecialValuesWhereverTheyStand) {
  std::mt19937_64 random(9);
  const Row row = random_row(random, 300, 2.0);
  for (const std::size_t at : {255, 256}) {
    for (const auto& [a, b] : {std::pair{-kInf, -kInf},
                               {-kInf, 1.0},
                               {1.0, -kInf},
                               {kInf, 1.0},
                               {1.0, kInf},
                               {kInf, kInf},
                               {kNan, 1.0},
                               {1.0, kNan},
                               {kNan, kNan},
                               {kNan, -kInf},
                               {0.0, -0.0},
                               {9.0, 9.0},
                               {9.0, 9.5}}) {
      for (const bool equal_otherwise : {true, false}) {
        SCOPED_TRACE(std::to_string(at) + ": " + std::to_string(a) + " and " + std::to_string(b));
        Row on_row = row, off_row = equal_otherwise ? row : plus_noise(random, row, 0.1);
        on_row[at] = a;
        off_row[at] = b;
        const auto on = stored<TypeParam>(on_row), off = stored<TypeParam>(off_row);
        expect_metrics(emulate(on, &off), compare_logits(doubles(on), doubles(off)));
      }
    }
  }
}

TYPED_TEST(CudaMetricsOf, OneRowAlone) {
  std::mt19937_64 random(10);
  Row row = random_row(random, 700, 2.0);
  row[3] = row[400] = 20.0;
  row[5] = -kInf;
  const auto on = stored<TypeParam>(row);
  const Row wide = doubles(on);
  StepMetrics expected = compare_logits(wide, wide);
  expected.n_nonfinite = 1;
  expect_metrics(emulate<TypeParam>(on, nullptr), expected);
  EXPECT_EQ(expected.top1_on, 3);
  EXPECT_TRUE(expected.tie_on);

  row[400] = kNan;
  const auto with_nan = stored<TypeParam>(row);
  const StepMetrics m = emulate<TypeParam>(with_nan, nullptr);
  EXPECT_EQ(m.n_nonfinite, 2);
  EXPECT_EQ(m.top1_on, 3);
  EXPECT_FALSE(m.tie_on);
  EXPECT_GT(m.margin_on, 10.0);
  EXPECT_TRUE(std::isnan(m.kl_on_off_nats));
}

TEST(CudaMetrics, RowsThatHaveNoSoftmaxAtAll) {
  for (const auto& [a, b] : {std::pair{kNan, 1.0}, {-kInf, -kInf}, {-kInf, 1.0}, {1.0, kNan}}) {
    const Row on(300, a), off(300, b);
    const StepMetrics m = emulate(on, off);
    expect_metrics(m, compare_logits(on, off));
    EXPECT_TRUE(std::isnan(m.js_nats));
    EXPECT_FALSE(m.top1_equal);
  }
  Row on(300, 0.0), off(300, 0.0);
  on[299] = 1.5e308;
  off[299] = -1.5e308;
  expect_metrics(emulate(on, off), compare_logits(on, off));
}

TEST(CudaMetrics, NansAreComparedAsStored) {
  // The conversion to double need not keep a NaN's bits, but what is stored has them.
  std::vector<Half> on = stored<Half>({1, kNan, 2}), off = on;
  EXPECT_TRUE(emulate(on, &off).bit_equal);
  off[1].bits ^= 1;
  EXPECT_FALSE(emulate(on, &off).bit_equal);
}

TEST(CudaMetrics, TiesGoToTheLowestIdWhicheverThreadOrBlockHasIt) {
  // In one thread, in two of a block, in two blocks; also where the higher id is in an earlier thread or block.
  const std::vector<std::pair<std::size_t, std::size_t>> ids{{3, 4},    {3, 131},   {255, 256},   {200, 300},
                                                             {7, 3000}, {0, 65536}, {200, 65536}, {300, 65537}};
  for (const auto& [low, high] : ids) {
    SCOPED_TRACE(std::to_string(low) + " and " + std::to_string(high));
    Row on(high + 10, 0.0), off(high + 10, 0.0);
    on[low] = on[high] = 5.0;
    off[low] = 5.0;
    off[high] = std::nextafter(5.0, 6.0);
    const StepMetrics tie = emulate<double>(on, nullptr), no_tie = emulate<double>(off, nullptr);
    EXPECT_EQ(tie.top1_on, static_cast<std::int64_t>(low));
    EXPECT_TRUE(tie.tie_on);
    EXPECT_EQ(tie.margin_on, 0.0);
    EXPECT_EQ(no_tie.top1_on, static_cast<std::int64_t>(high));
    EXPECT_FALSE(no_tie.tie_on);
    EXPECT_EQ(no_tie.margin_on, std::nextafter(5.0, 6.0) - 5.0);
    if (high < 1000) expect_metrics(emulate(on, off), compare_logits(on, off));
  }
}

TEST(CudaMetrics, TheSecondLargestIsFoundWhereverItIs) {
  for (const std::size_t first : {0, 255, 256, 599}) {
    for (const std::size_t second : {1, 254, 512}) {
      Row on(600, -1.0);
      on[first] = 4.0;
      on[second] = 1.5;
      const Row off(600, -2.0);
      const StepMetrics m = emulate(on, off);
      EXPECT_EQ(m.top1_on, static_cast<std::int64_t>(first));
      EXPECT_EQ(m.margin_on, 2.5);
      EXPECT_TRUE(m.tie_off);
      EXPECT_EQ(m.top1_off, 0);
    }
  }
}

TEST(CudaMetrics, TheOrderInWhichThreadsRunIsWithoutInfluence) {
  std::mt19937_64 random(12);
  for (const double scale : {1e-8, 0.5, 200.0}) {
    const Row on = random_row(random, 600, 3.0), off = plus_noise(random, on, scale);
    const StepMetrics first = emulate(on, off, 0);
    EXPECT_GT(first.kl_on_off_nats, 0.0);
    for (std::uint64_t seed = 1; seed < 9; ++seed) {
      const StepMetrics m = emulate(on, off, seed);
      EXPECT_TRUE(same_bits(&m.kl_on_off_nats, &first.kl_on_off_nats, 1));
      EXPECT_TRUE(same_bits(&m.kl_off_on_nats, &first.kl_off_on_nats, 1));
      EXPECT_TRUE(same_bits(&m.js_nats, &first.js_nats, 1));
      expect_metrics(m, first, 0.0);
    }
  }
}

TEST(CudaMetrics, OneRowAloneIsTwoKernelsAndAPairSix) {
  const Row row{1, 2, 3};
  std::vector<device::Bytes16> workspace((metric_workspace_size(3) + 15) / 16);
  StepMetrics out;
  Emulated one, two;
  device::launch_metrics<double>(row.data(), nullptr, 3, workspace.data(), &out, one);
  device::launch_metrics<double>(row.data(), row.data(), 3, workspace.data(), &out, two);
  EXPECT_EQ(one.names.size(), 2u);
  EXPECT_EQ(two.names.size(), 6u);
  EXPECT_THROW(device::launch_metrics<double>(row.data(), nullptr, 0, workspace.data(), &out, one), Error);
}

TEST(CudaMetrics, TheWorkspaceIsSmall) {
  EXPECT_EQ(metric_blocks(1), 1);
  EXPECT_EQ(metric_blocks(256), 1);
  EXPECT_EQ(metric_blocks(257), 2);
  EXPECT_EQ(metric_blocks(32000), 125);
  EXPECT_EQ(metric_blocks(256000), kMaxMetricBlocks);
  EXPECT_LT(metric_workspace_size(256000), 64u * 1024);
  EXPECT_GT(metric_workspace_size(256000), metric_workspace_size(1));
}

}  // namespace
}  // namespace kvdiv::test
