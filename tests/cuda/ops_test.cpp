// The operations on a GPU: the invariant backend's promise, and closeness to FP64 from both sides.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gpu.h"
#include "kvdiv/model/mask.h"

namespace kvdiv::test {
namespace {

using at::kBFloat16;
using at::kDouble;
using at::kFloat;
using at::kHalf;

/// Half a unit in the last place, relative: what one rounding of a result costs at most.
double half_ulp(at::ScalarType dtype) {
  return dtype == kHalf ? 0x1p-11 : dtype == kBFloat16 ? 0x1p-8 : dtype == kFloat ? 0x1p-24 : 0x1p-53;
}

struct GpuOps : Gpu {
  std::shared_ptr<const Ops> ops(const std::string& backend) const { return make_ops(backend, "eager", gpu->device()); }
  std::shared_ptr<const Ops> reference = make_ops("torch", "eager");
};

TEST_F(GpuOps, LinearIsCloseToFp64AndNotExact) {
  for (const char* backend : {"torch", "invariant", "cublaslt:heuristic", "cublaslt:no-split-k", "cublaslt:one-algorithm"})
    for (const auto dtype : {kHalf, kBFloat16, kFloat, kDouble})
      for (const std::int64_t M : {1, 7, 8, 9, 64, 200}) {
        const auto backend_ops = ops(backend);
        const at::Tensor w = random({320, 704}, dtype, 2).mul(1.0 / 26.5), x = random({1, M, 704}, dtype, 3);
        const at::Tensor y = backend_ops->linear(x, {backend_ops->pack(w), 320});
        const at::Tensor exact = reference->linear(x.to(at::kCPU, kDouble), {w.to(at::kCPU, kDouble), 320});
        const double error = relative_error(y, exact);
        EXPECT_LT(error, 4 * half_ulp(dtype) + 1e-6 * (dtype == kFloat)) << backend << " " << c10::toString(dtype) << " " << M;
        if (dtype != kDouble) {
          EXPECT_GT(error, half_ulp(dtype) / 20) << backend << " " << c10::toString(dtype) << " " << M;
        }
      }
}

/// LLaMA-2-7B's, Mistral-7B's and Gemma-2-2B's sizes, and some that fit no tile: a row alone has the bits that it has among
/// others.
TEST_F(GpuOps, InvariantLinearDoesNotDependOnTheNumberOfRows) {
  const auto invariant = ops("invariant");
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{4096, 4096}, {11008, 4096}, {4096, 11008}, {1024, 4096},
                                                                 {4096, 14336}, {2304, 9216}, {96, 172}, {1000, 64}};
  for (const auto dtype : {kHalf, kBFloat16, kFloat, kDouble})
    for (const auto& [N, K] : sizes) {
      if (dtype == kDouble && N * K > 5'000'000) continue;
      const at::Tensor w = invariant->pack(random({N, K}, dtype, 2).mul(0.02)), x = random({1, 700, K}, dtype, 3);
      const at::Tensor alone = invariant->linear(x.narrow(1, 5, 1), {w, N});
      for (const std::int64_t M : {2, 8, 9, 16, 17, 63, 64, 65, 128, 200, 512, 695}) {
        const at::Tensor together = invariant->linear(x.narrow(1, 5, M), {w, N});
        ASSERT_TRUE(same_bits(together.narrow(1, 0, 1), alone)) << c10::toString(dtype) << " " << N << "x" << K << " M " << M;
        const at::Tensor last = invariant->linear(x.narrow(1, 5 + M - 1, 1), {w, N});
        ASSERT_TRUE(same_bits(together.narrow(1, M - 1, 1), last)) << c10::toString(dtype) << " " << N << "x" << K << " M " << M;
      }
    }
}

TEST_F(GpuOps, InvariantRowsAreNormedAlike) {
  const auto invariant = ops("invariant");
  for (const auto dtype : {kHalf, kBFloat16, kFloat, kDouble})
    for (const std::int64_t C : {64, 2304, 4096}) {
      const at::Tensor x = random({1, 100, C}, dtype, 4), w = random({C}, dtype, 5);
      const NormParams params{1e-5, 0.0, true};
      const at::Tensor together = invariant->rms_norm(x, w, params);
      EXPECT_TRUE(same_bits(together.narrow(1, 37, 1), invariant->rms_norm(x.narrow(1, 37, 1), w, params)));
      const at::Tensor exact = reference->rms_norm(x.to(at::kCPU, kDouble), w.to(at::kCPU, kDouble), params);
      EXPECT_LT(relative_error(together, exact), 3 * half_ulp(dtype) + (dtype == kFloat ? 1e-6 : 0.0));
    }
}

/// Decoding: one query over all keys, over a view that begins at its window, among other queries with a mask.
TEST_F(GpuOps, InvariantAttentionDependsOnVisibleKeysOnly) {
  const auto invariant = ops("invariant");
  const std::int64_t H = 32, G = 8, D = 128, S = 700, T = 300, window = 257;
  for (const auto dtype : {kHalf, kBFloat16, kFloat})
    for (const std::optional<double> cap : {std::optional<double>(), std::optional<double>(50.0)}) {
      const at::Tensor q = random({1, H, T, D}, dtype, 6), k = random({1, G, S, D}, dtype, 7), v = random({1, G, S, D}, dtype, 8);
      AttentionParams params{0.0884, cap, 0};
      const at::Tensor masked = invariant->attention(q, k, v, visibility(S - T, T, 0, S, window, gpu->device()), params, {});
      for (const std::int64_t t : {0, 1, 150, 299}) {
        const std::int64_t end = S - T + t + 1, first = std::max<std::int64_t>(0, end - window);
        params.first_key = first;
        const at::Tensor alone = invariant->attention(q.narrow(2, t, 1), k.narrow(2, first, end - first), v.narrow(2, first, end - first), {}, params, {});
        ASSERT_TRUE(same_bits(masked.narrow(1, t, 1), alone)) << c10::toString(dtype) << " query " << t;
      }
      params.first_key = 0;
      const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, kDouble); };
      const at::Tensor exact = reference->attention(wide(q), wide(k), wide(v), visibility(S - T, T, 0, S, window), params, {});
      const double error = relative_error(masked, exact);
      EXPECT_LT(error, 8 * half_ulp(dtype) + (dtype == kFloat ? 1e-6 : 0.0));
      EXPECT_GT(error, half_ulp(dtype) / 20);
    }
}

/// One launch in the place of ATen's: the same bits.
TEST_F(GpuOps, RotaryIsAtensBitForBit) {
  for (const auto dtype : {kHalf, kBFloat16, kFloat, kDouble}) {
    const at::Tensor x = random({1, 33, 8, 64}, dtype, 9).transpose(1, 2), angles = random({1, 1, 33, 64}, kDouble, 10).mul(50.0);
    const at::Tensor cos = angles.cos().to(dtype), sin = angles.sin().to(dtype);
    const at::Tensor rotated = at::cat({x.narrow(3, 32, 32).neg(), x.narrow(3, 0, 32)}, -1);
    const at::Tensor aten = x * cos + rotated * sin;
    for (const char* backend : {"torch", "invariant", "cublaslt:heuristic"})
      EXPECT_TRUE(same_bits(ops(backend)->rotate(x, cos, sin), aten)) << backend << " " << c10::toString(dtype);
  }
}

TEST_F(GpuOps, ElementwiseFunctionsAreCloseAndPlaceless) {
  const auto invariant = ops("invariant");
  for (const auto dtype : {kHalf, kBFloat16, kFloat, kDouble}) {
    const at::Tensor gate = random({1, 5, 1001}, dtype, 11).mul(4.0), up = random({1, 5, 1001}, dtype, 12);
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
      const at::Tensor y = invariant->gated(gate, up, activation);
      EXPECT_TRUE(same_bits(y.narrow(1, 3, 1), invariant->gated(gate.narrow(1, 3, 1), up.narrow(1, 3, 1), activation)));
      const at::Tensor exact = reference->gated(gate.to(at::kCPU, kDouble), up.to(at::kCPU, kDouble), activation);
      EXPECT_LT(relative_error(y, exact), 3 * half_ulp(dtype) + (dtype == kFloat ? 1e-6 : 0.0));
    }
    const at::Tensor capped = invariant->soft_cap(gate, 30.0);
    EXPECT_LT(relative_error(capped, reference->soft_cap(gate.to(at::kCPU, kDouble), 30.0)), 4 * half_ulp(dtype) + (dtype == kFloat ? 1e-6 : 0.0));
    const at::Tensor log = invariant->log_softmax(gate);
    EXPECT_LT(relative_error(log, reference->log_softmax(gate.to(at::kCPU, kDouble))), dtype == kDouble ? 1e-14 : 1e-6);
  }
}

TEST_F(GpuOps, OneAlgorithmIsOneAlgorithm) {
  const auto pinned = ops("cublaslt:one-algorithm");
  const at::Tensor w = random({4096, 4096}, kHalf, 2);
  for (const std::int64_t M : {1, 3, 64, 200, 1000}) pinned->linear(random({1, M, 4096}, kHalf, 3), {w, 4096});
  const auto choices = pinned->choices();
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].from_rows, 1);
  EXPECT_EQ(choices[0].to_rows, 1000);
  EXPECT_EQ(choices[0].n_row_counts, 5);
  for (const auto& [name, value] : choices[0].algorithm)
    if (name == "split_k") {
      EXPECT_LE(value, 1);
    }
  EXPECT_THROW(ops("cublaslt:fastest"), Error);
  EXPECT_THROW(ops("cublaslt"), Error);
  EXPECT_THROW(ops("order:kahan"), Error) << "emulated orders are the CPU's";
}

}  // namespace
}  // namespace kvdiv::test
