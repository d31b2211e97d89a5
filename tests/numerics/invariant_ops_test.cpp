// What the invariant backend promises: a row's bits do not depend on the rows beside it, on hidden keys, or on threads.
#include "numerics/invariant_ops.h"

#include <ATen/Parallel.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "kvdiv/model/mask.h"
#include "numerics/torch_ops.h"

namespace kvdiv {
namespace {

const std::vector<at::ScalarType> kDTypes{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

/// Shows everything to nobody: an observing tap.
class LookingTap final : public Tap {
 public:
  bool wants(Site, std::int64_t) const override { return true; }
  at::Tensor visit(Site, std::int64_t, const at::Tensor& tensor) override {
    ++n;
    return tensor;
  }
  int n = 0;
};

TEST(Invariant, ARowDoesNotDependOnTheRowsBesideIt) {
  const InvariantOps ops(kernels());
  for (const auto dtype : kDTypes) {
    const at::Tensor x = at::randn({1, 50, 96}).to(dtype), w = at::randn({80, 96}).to(dtype);
    const at::Tensor gain = at::randn({96}).to(dtype);
    const Matrix packed{ops.pack(w), 80};
    const at::Tensor all = ops.linear(x, packed), normed = ops.rms_norm(x, gain, {});
    const at::Tensor logs = ops.log_softmax(x);
    for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 9, 12, 13, 25, 37, 49})
      for (const std::int64_t first : {std::int64_t{0}, 50 - n}) {
        const at::Tensor part = x.narrow(1, first, n);
        EXPECT_TRUE(at::equal(ops.linear(part, packed), all.narrow(1, first, n))) << dtype << " " << n;
        EXPECT_TRUE(at::equal(ops.rms_norm(part, gain, {}), normed.narrow(1, first, n)));
        EXPECT_TRUE(at::equal(ops.log_softmax(part), logs.narrow(1, first, n)));
      }
  }
}

/// The newest query alone against a cache, and inside a whole prefix, with and without a window.
TEST(Invariant, AttentionDoesNotDependOnOtherQueriesOrHiddenKeys) {
  const InvariantOps ops(kernels());
  const AttentionParams params{0.3, 20.0};
  for (const auto dtype : kDTypes)
    for (const std::optional<std::int64_t> window : {std::optional<std::int64_t>(), std::optional<std::int64_t>(6)}) {
      const at::Tensor q = at::randn({1, 4, 41, 24}).to(dtype);
      const at::Tensor k = at::randn({1, 2, 41, 24}).to(dtype), v = at::randn({1, 2, 41, 24}).to(dtype);
      const at::Tensor whole = ops.attention(q, k, v, visibility(0, 41, 0, 41, window), params, {});
      for (const std::int64_t t : {0, 1, 5, 6, 7, 17, 40}) {
        const std::int64_t first = window ? std::max<std::int64_t>(0, t - 5) : 0;
        for (const std::int64_t from : {first, std::int64_t{0}}) {
          const at::Tensor alone =
              ops.attention(q.narrow(2, t, 1), k.narrow(2, from, t + 1 - from), v.narrow(2, from, t + 1 - from),
                            visibility(t, 1, from, t + 1 - from, window), params, {});
          EXPECT_TRUE(at::equal(alone, whole.narrow(1, t, 1))) << dtype << " t " << t << " from " << from;
        }
      }
    }
}

TEST(Invariant, ATapThatLooksChangesNothing) {
  const InvariantOps ops(kernels());
  LookingTap tap;
  for (const auto dtype : kDTypes) {
    const at::Tensor q = at::randn({1, 4, 9, 24}).to(dtype), k = at::randn({1, 2, 21, 24}).to(dtype);
    const at::Tensor mask = visibility(12, 9, 0, 21, 7);
    const AttentionParams params{0.3, 20.0};
    EXPECT_TRUE(at::equal(ops.attention(q, k, k, mask, params, {}), ops.attention(q, k, k, mask, params, {&tap, 0})));
  }
  EXPECT_EQ(tap.n, 4 * 4);  // scores, capped scores, weights, mix
}

/// A mask with holes, as no model of ours has it: the same as attention over the keys that are left.
TEST(Invariant, HiddenKeysInTheMiddleTakeNoPart) {
  const InvariantOps ops(kernels());
  for (const auto dtype : kDTypes) {
    const at::Tensor q = at::randn({1, 2, 1, 16}).to(dtype), k = at::randn({1, 2, 20, 16}).to(dtype);
    at::Tensor mask = at::ones({1, 20}, at::TensorOptions().dtype(at::kBool));
    for (const int hidden : {3, 4, 11}) mask.narrow(1, hidden, 1).fill_(false);
    const at::Tensor left = at::cat({k.narrow(2, 0, 3), k.narrow(2, 5, 6), k.narrow(2, 12, 8)}, 2);
    EXPECT_TRUE(at::equal(ops.attention(q, k, k, mask, {0.25, {}}, {}), ops.attention(q, left, left, {}, {0.25, {}}, {})));
  }
}

TEST(Invariant, ThreadsChangeNothing) {
  const InvariantOps ops(kernels());
  const int before = at::get_num_threads();
  for (const auto dtype : kDTypes) {
    const at::Tensor x = at::randn({1, 64, 256}).to(dtype), w = at::randn({512, 256}).to(dtype);
    const at::Tensor q = at::randn({1, 8, 64, 32}).to(dtype);
    const at::Tensor rows = at::randn({1, 300, 256}).to(dtype), gain = at::randn({256}).to(dtype);  // more than one thread's work
    const Matrix packed{ops.pack(w), 512};
    std::vector<at::Tensor> alone;
    for (const int n : {1, 2, 3}) {
      at::set_num_threads(n);
      const std::vector<at::Tensor> results{ops.linear(x, packed),
                                            ops.attention(q, q, q, visibility(0, 64, 0, 64, {}), {0.2, {}}, {}),
                                            ops.rms_norm(rows, gain, {1e-5, 0.0, false}),
                                            ops.log_softmax(rows),
                                            ops.gated(rows, rows, Activation::silu)};
      if (n == 1) alone = results;
      for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], alone[i])) << dtype << ", operation " << i;
    }
  }
  at::set_num_threads(before);
}

/// The same rounding points as the torch backend, another order: close, and in 16 bits not equal everywhere.
TEST(Invariant, RoundsWhereTheTorchBackendRounds) {
  const InvariantOps ops(kernels());
  const TorchOps torch;
  at::manual_seed(3);
  const at::Tensor q = at::randn({1, 4, 30, 32}), k = at::randn({1, 2, 30, 32}), v = at::randn({1, 2, 30, 32});
  const at::Tensor mask = visibility(0, 30, 0, 30, 11);
  const AttentionParams params{0.5, 4.0};
  const at::Tensor exact = torch.attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), mask, params, {});
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
    const auto error = [&](const Ops& o) {
      const at::Tensor got = o.attention(q.to(dtype), k.to(dtype), v.to(dtype), mask, params, {});
      return (got.to(at::kDouble) - exact).pow(2).mean().sqrt().item().toDouble();
    };
    EXPECT_LT(error(ops), 1.2 * error(torch)) << dtype;
    EXPECT_GT(error(ops), 0.5 * error(torch)) << dtype;  // fewer roundings would be another arithmetic, not another order
  }
}

}  // namespace
}  // namespace kvdiv
