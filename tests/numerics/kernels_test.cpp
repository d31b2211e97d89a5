// The kernels of the invariant backend, for every instruction set that this CPU has: against scalar loops bit for bit, and
// against each other.
#include "kvdiv/numerics/kernels.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kvdiv/base/error.h"
#include "numerics/invariant_ops.h"
#include "kvdiv/numerics/tensor_storage.h"

namespace kvdiv {
namespace {

const std::vector<at::ScalarType> kDTypes{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

std::vector<double> doubles(const at::Tensor& t) {
  const at::Tensor d = t.to(at::kDouble).contiguous().reshape({-1});
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

at::Tensor tensor_of(const std::vector<double>& values, at::ScalarType dtype) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<double>());
  return t.to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// One fused multiply-add in what the dtype is accumulated in.
double fma_in(at::ScalarType dtype, double a, double b, double c) {
  return dtype == at::kDouble ? std::fma(a, b, c)
                              : std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
}
double add_in(at::ScalarType dtype, double a, double b) {
  return dtype == at::kDouble ? a + b : static_cast<float>(a) + static_cast<float>(b);
}

/// Sixteen lanes, then neighbours.
double lane_sum(at::ScalarType dtype, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> lanes(16, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 16] = fma_in(dtype, a[i], b[i], lanes[i % 16]);
  for (std::size_t n = 8; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) lanes[i] = add_in(dtype, lanes[2 * i], lanes[2 * i + 1]);
  return lanes[0];
}

class EveryTable : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& table = kernels_named(GetParam());
  InvariantOps ops{table};
};
INSTANTIATE_TEST_SUITE_P(Kernels, EveryTable, testing::ValuesIn(kernel_names()), [](const auto& i) { return i.param; });

TEST_P(EveryTable, AProductIsOneChainOfMultiplyAdds) {
  for (const auto dtype : kDTypes)
    for (const std::int64_t M : {1, 2, 3, 5, 9, 12, 13, 40})
      for (const auto& [K, N] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 31}, {64, 33}, {48, 200}}) {
        const at::Tensor x = at::randn({1, M, K}).to(dtype), w = at::randn({N, K}).to(dtype);
        const auto X = doubles(x), W = doubles(w);
        std::vector<double> expected;
        for (std::int64_t m = 0; m < M; ++m)
          for (std::int64_t n = 0; n < N; ++n) {
            double sum = 0.0;
            for (std::int64_t k = 0; k < K; ++k)
              sum = fma_in(dtype, X[static_cast<std::size_t>(m * K + k)], W[static_cast<std::size_t>(n * K + k)], sum);
            expected.push_back(sum);
          }
        // The accumulator is rounded to the storage type once, by ATen here.
        const auto accumulator = dtype == at::kDouble ? at::kDouble : at::kFloat;
        const at::Tensor rounded = tensor_of(expected, accumulator).to(dtype).view({1, M, N});
        EXPECT_TRUE(same_bits(ops.linear(x, {ops.pack(w), N}), rounded)) << M << " " << K << " " << N << " " << dtype;
      }
}

TEST_P(EveryTable, PackingLosesNothing) {
  for (const auto dtype : kDTypes)
    for (const std::int64_t N : {1, 31, 32, 33, 100}) {
      const at::Tensor w = at::randn({N, 7}).to(dtype);
      const Matrix packed{ops.pack(w), N};
      EXPECT_EQ(packed.data.scalar_type(), dtype);
      EXPECT_TRUE(same_bits(ops.unpack(packed), w));
      at::Tensor ids = at::empty({1, 3}, at::TensorOptions().dtype(at::kLong));
      std::int64_t* const id = ids.mutable_data_ptr<std::int64_t>();
      id[0] = N - 1, id[1] = 0, id[2] = N / 2;
      const at::Tensor rows = ops.rows(packed, ids);
      for (std::int64_t t = 0; t < 3; ++t) EXPECT_TRUE(same_bits(rows.select(1, t).reshape({7}), w.select(0, id[t])));
    }
}

TEST_P(EveryTable, AScoreIsSixteenLanesThenNeighbours) {
  for (const auto dtype : kDTypes)
    for (const std::int64_t D : {1, 8, 16, 24, 64, 80})
      for (const std::int64_t n : {1, 7, 8, 16, 17, 33}) {
        const at::Tensor q = at::randn({D}).to(dtype), keys = at::randn({n, D}).to(dtype);
        const auto wide = wide_type(dtype);
        at::Tensor Q = at::empty({padded_row(D)}, at::TensorOptions().dtype(wide));
        at::Tensor K = at::empty({n, padded_row(D)}, at::TensorOptions().dtype(wide));
        at::Tensor scores = at::empty({padded_row(n)}, at::TensorOptions().dtype(wide));
        table.widen(storage_of(q), q.const_data_ptr(), D, padded_row(D), Q.data_ptr());
        for (std::int64_t i = 0; i < n; ++i)
          table.widen(storage_of(q), keys.select(0, i).const_data_ptr(), D, padded_row(D), K.select(0, i).data_ptr());
        table.products(storage_of(q), {Q.const_data_ptr(), K.const_data_ptr(), scores.data_ptr(), n, D, 0.125, 0.0});
        std::vector<double> expected;
        for (std::int64_t i = 0; i < n; ++i)
          expected.push_back(lane_sum(dtype, doubles(q), doubles(keys.select(0, i))));
        const at::Tensor product = tensor_of(expected, wide).to(dtype);
        const at::Tensor scaled = tensor_of(doubles(product), wide).mul(0.125).to(dtype);  // exact but for subnormals
        EXPECT_TRUE(same_bits(scores.narrow(0, 0, n).to(dtype), scaled)) << dtype << " " << D << " " << n;
      }
}

/// Halves have 65,536 values: every one of them, in every function, beside FP64.
TEST_P(EveryTable, ElementwiseFunctionsAreRightOnAllHalves) {
  std::vector<double> all;
  for (int bits = 0; bits < 65536; ++bits) {
    const c10::Half h(static_cast<std::uint16_t>(bits), c10::Half::from_bits());
    if (std::isfinite(static_cast<float>(h))) all.push_back(static_cast<float>(h));
  }
  const at::Tensor x = tensor_of(all, at::kHalf), one = at::ones_like(x);
  const auto check = [&](const at::Tensor& got, double (*exact)(double), const char* name) {
    const auto values = doubles(got);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double right = exact(all[i]);
      const auto nearest = static_cast<float>(c10::Half(static_cast<float>(right)));
      // Within one unit of a half. Where 1 + tanh cancels, FP32 leaves ½|x|·2⁻²³ and no relative accuracy: the reference's
      // FP32 formula has that too.
      const double ulp = std::max(std::abs(right) * 0x1p-10, 0x1p-24);
      ASSERT_LE(std::abs(values[i] - nearest), std::max(ulp, std::abs(all[i]) * 0x1p-24)) << name << "(" << all[i] << ")";
    }
  };
  check(ops.gated(x, one, Activation::silu), [](double v) { return v / (1 + std::exp(-v)); }, "silu");
  check(ops.gated(x, one, Activation::gelu_tanh),
        [](double v) { return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }, "gelu");
}

TEST_P(EveryTable, ASoftCapRoundsAfterEachStep) {
  for (const auto dtype : {at::kHalf, at::kFloat}) {
    const at::Tensor x = (at::randn({1000}) * 60).to(dtype);
    const at::Tensor exact = x.to(at::kDouble).div(50.0).tanh().mul(50.0);
    const double worst = (ops.soft_cap(x, 50.0).to(at::kDouble) - exact).abs().max().item().toDouble();
    EXPECT_LT(worst, dtype == at::kHalf ? 0.08 : 5e-5);
    EXPECT_GT(worst, dtype == at::kHalf ? 0.005 : 1e-7);  // three roundings of numbers up to 50 leave a trace
  }
  const at::Tensor extreme = tensor_of({65504, -65504, 0.0, 1e-7}, at::kHalf);
  const auto capped = doubles(ops.soft_cap(extreme, 30.0));
  EXPECT_EQ(capped[0], 30.0);
  EXPECT_EQ(capped[1], -30.0);
  EXPECT_EQ(capped[2], 0.0);
}

TEST_P(EveryTable, NormsAndSoftmaxMeetFp64) {
  for (const auto dtype : kDTypes) {
    const double eps = dtype == at::kHalf ? 0x1p-10 : dtype == at::kBFloat16 ? 0x1p-7 : dtype == at::kFloat ? 1e-6 : 1e-14;
    const at::Tensor x = at::randn({1, 3, 200}).to(dtype), w = (at::rand({200}) + 0.5).to(dtype);
    const at::Tensor X = x.to(at::kDouble), exact = X / (X.pow(2).mean(-1, true) + 1e-5).sqrt() * w.to(at::kDouble);
    for (const bool before : {true, false}) {
      const at::Tensor got = ops.rms_norm(x, w, {1e-5, 0.0, before}).to(at::kDouble);
      EXPECT_LT((got - exact).abs().max().item().toDouble(), 4 * eps) << dtype;
    }
    const at::Tensor log_probabilities = ops.log_softmax(x);
    EXPECT_EQ(log_probabilities.scalar_type(), wide_type(dtype));
    const at::Tensor expected = X - X.logsumexp(std::vector<std::int64_t>{-1}, true);
    EXPECT_LT((log_probabilities.to(at::kDouble) - expected).abs().max().item().toDouble(), dtype == at::kDouble ? 1e-13 : 2e-6);
  }
}

/// The same bits at every place of rows of every length.
TEST_P(EveryTable, ElementwiseFunctionsDoNotDependOnThePlace) {
  for (const auto dtype : kDTypes) {
    const at::Tensor x = (at::randn({70}) * 4).to(dtype), up = at::randn({70}).to(dtype);
    for (const std::int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 69})
      for (const std::int64_t at : {0, 1}) {
        const auto cut = [&](const at::Tensor& t) { return t.narrow(0, at, n).clone(); };
        EXPECT_TRUE(same_bits(ops.gated(cut(x), cut(up), Activation::silu), cut(ops.gated(x, up, Activation::silu))));
        EXPECT_TRUE(
            same_bits(ops.gated(cut(x), cut(up), Activation::gelu_tanh), cut(ops.gated(x, up, Activation::gelu_tanh))));
        EXPECT_TRUE(same_bits(ops.soft_cap(cut(x), 30.0), cut(ops.soft_cap(x, 30.0))));
      }
  }
}

/// Everything that a table computes, as bytes.
std::string everything(const KernelTable& table, at::ScalarType dtype) {
  const InvariantOps ops(table);
  at::manual_seed(7);
  std::string out;
  const auto note = [&](const at::Tensor& t) {
    const at::Tensor c = t.contiguous();
    out.append(static_cast<const char*>(c.const_data_ptr()), c.nbytes());
  };
  const at::Tensor x = at::randn({1, 19, 200}).to(dtype), w = at::randn({333, 200}).to(dtype);
  note(ops.linear(x, {ops.pack(w), 333}));
  note(ops.linear(x.narrow(1, 3, 1), {ops.pack(w), 333}));
  for (const bool before : {true, false}) note(ops.rms_norm(x, w.select(0, 0).contiguous(), {1e-5, 1.0, before}));
  note(ops.log_softmax(x));
  note(ops.gated(x, x.neg(), Activation::silu));
  note(ops.gated(x * 3, x, Activation::gelu_tanh));
  note(ops.soft_cap(x * 50, 30.0));
  const at::Tensor q = at::randn({1, 4, 5, 40}).to(dtype), k = at::randn({1, 2, 37, 40}).to(dtype);
  note(ops.attention(q, k, k * 0.5, {}, {0.2, 5.0}, {}));
  return out;
}

/// Skipped, with the reason, on a CPU with one instruction set; the scalar references above hold there all the same.
TEST(Kernels, EveryInstructionSetGivesTheSameBits) {
  const auto names = kernel_names();
  if (names.size() < 2) GTEST_SKIP() << "this CPU has one instruction set with multiply-adds: " << names.front();
  for (const auto dtype : kDTypes) {
    const std::string first = everything(kernels_named(names.front()), dtype);
    EXPECT_GT(first.size(), 10000u);
    for (const std::string& name : names) EXPECT_TRUE(everything(kernels_named(name), dtype) == first) << name << dtype;
  }
}

TEST(Kernels, AnUnknownSetIsRefused) { EXPECT_THROW(kernels_named("MMX"), Error); }

}  // namespace
}  // namespace kvdiv
