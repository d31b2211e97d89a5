// The backend order:… against its definition: every result bit for bit, in every order, dtype and instruction set.
#include "numerics/order_ops.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>

#include "kvdiv/base/error.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/model/mask.h"
#include "kvdiv/numerics/half_sums.h"
#include "numerics/order_kernels.h"
#include "numerics/torch_ops.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

using Values = std::vector<double>;
constexpr DType kDtypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

/// Normal numbers, the same in every run, in a dtype.
at::Tensor normals(at::IntArrayRef shape, std::uint32_t index, DType dtype) {
  at::Tensor out = at::empty(shape, at::kFloat);
  fill_standard_normals({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, {92, index, 0});
  return out.to(scalar_type(dtype));
}

/// Keeps what it was shown.
class Watcher final : public Tap {
 public:
  bool wants(Site, std::int64_t) const override { return true; }
  at::Tensor visit(Site site, std::int64_t, const at::Tensor& x) override {
    seen.emplace_back(site, x.clone());
    return x;
  }
  std::vector<std::pair<Site, at::Tensor>> seen;
};

std::vector<ReductionSpec> all_specs() {
  std::vector<ReductionSpec> out;
  for (const auto& [accumulator, a] : EnumNames<Accumulator>::values)
    for (const auto& [order, o] : EnumNames<SumOrder>::values)
      for (const std::int64_t n : takes_number(order) ? std::vector<std::int64_t>{3, 32} : std::vector<std::int64_t>{0})
        out.push_back({order, n, accumulator});
  return out;
}

/// A number rounded to a dtype.
double rounded(double x, DType dtype) { return at::empty({1}, at::kDouble).fill_(x).to(scalar_type(dtype)).to(at::kDouble).item().toDouble(); }

double max_abs(const at::Tensor& x) { return x.abs().max().item().toDouble(); }

bool same_bits(double a, double b) { return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0; }

/// Runs `body` with each instruction set that this CPU has.
template <class Body>
void with_every_target(const Body& body) {
  for (std::int64_t left = vector_targets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Lengths that no block divides, shorter than a block, one and none; magnitudes that overflow an FP16 accumulator and
// that underflow; rows in fours and alone; every instruction set of this CPU.
TEST(OrderKernels, GiveTheBitsOfTheDefinition) {
  std::int64_t n_different = 0, n_all = 0;
  for (const DType storage : kDtypes)
    for (const std::size_t n : {0, 1, 2, 5, 31, 33, 100})
      for (const double size : {1.0, 300.0, 0x1p-14}) {
        constexpr std::size_t kRows = 6;
        const Values x = to_doubles(normals({static_cast<std::int64_t>(kRows * n)}, 1, storage) * size);
        const Values tile = to_doubles(normals({static_cast<std::int64_t>(n * kTileColumns)}, 2, storage) * size);
        const std::vector<float> x32(x.begin(), x.end()), tile32(tile.begin(), tile.end());
        for (const ReductionSpec& spec : all_specs()) {
          Values expected;
          for (std::size_t r = 0; r < kRows; ++r)
            for (std::size_t c = 0; c < kTileColumns; ++c) {
              Values column;
              for (std::size_t k = 0; k < n; ++k) column.push_back(tile[k * kTileColumns + c]);
              expected.push_back(ordered_dot({x.data() + r * n, n}, column, spec, storage));
            }
          with_every_target([&] {
            Values out(expected.size());
            std::vector<float> out32(expected.size());
            if (storage == DType::float64) {
              ordered_tile({x.data(), tile.data(), out.data(), kRows, n, n}, spec);
            } else {
              ordered_tile({x32.data(), tile32.data(), out32.data(), kRows, n, n}, spec);
              out.assign(out32.begin(), out32.end());
            }
            for (std::size_t i = 0; i < out.size(); ++i, ++n_all) n_different += !same_bits(out[i], expected[i]);
          });
        }
      }
  EXPECT_EQ(n_different, 0) << "of " << n_all;
}

TEST(OrderOps, PackAndRowsCopy) {
  const OrderOps ops(parse_reductions("order:sequential"));
  for (const std::int64_t N : {1, 15, 16, 33}) {
    const at::Tensor w = normals({N, 7}, 3, DType::float16);
    const Matrix packed{ops.pack(w), N};
    EXPECT_EQ(packed.data.scalar_type(), at::kHalf);
    EXPECT_TRUE(at::equal(ops.unpack(packed), w));
    EXPECT_TRUE(at::equal(ops.rows(packed, at::arange(N, at::kLong).view({1, N}))[0], w));
    EXPECT_THROW(ops.rows(packed, at::full({1, 1}, N, at::kLong)), Error) << "padding is no row";
  }
}

TEST(OrderOps, LinearTakesTheSpecOfItsRows) {
  const Reductions r = parse_reductions("order:prefill=pairwise@float16,decode=split-k:8");
  const OrderOps ops(r);
  for (const DType dtype : kDtypes) {
    const std::int64_t K = 37, N = 21;
    const at::Tensor w = normals({N, K}, 4, dtype);
    const Matrix packed{ops.pack(w), N};
    for (const std::int64_t T : {1, 2, 5}) {
      const at::Tensor x = normals({1, T, K}, 5, dtype);
      const Values got = to_doubles(ops.linear(x, packed));
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t n = 0; n < N; ++n)
          ASSERT_EQ(got[static_cast<std::size_t>(t * N + n)], rounded(ordered_dot(to_doubles(x[0][t]), to_doubles(w[n]), r.of(T), dtype), dtype)) << name_of(dtype) << T;
    }
  }
}

TEST(OrderOps, NormsAndLogSoftmaxTakeTheOrderWithWideAccumulators) {
  for (const DType dtype : kDtypes) {
    const at::Tensor x = normals({1, 3, 50}, 6, dtype) * 400.0, w = normals({50}, 7, dtype);
    const OrderOps wide(parse_reductions("order:blocked:7")), half(parse_reductions("order:blocked:7@float16")), other(parse_reductions("order:sequential"));
    // 50 squares of 400² are far above 65504: an FP16 accumulator would be infinite.
    EXPECT_TRUE(at::equal(wide.rms_norm(x, w, {}), half.rms_norm(x, w, {})));
    EXPECT_TRUE(at::equal(wide.log_softmax(x / 400.0), half.log_softmax(x / 400.0)));
    EXPECT_FALSE(at::equal(wide.log_softmax(x / 400.0), other.log_softmax(x / 400.0)));
    EXPECT_TRUE(at::isfinite(half.rms_norm(x, w, {})).all().item().toBool());
  }
}

// Against ATen's kernels: the same function, other roundings. The bounds are a few roundings of the dtype.
TEST(OrderOps, AreTheFunctionsOfTheTorchBackend) {
  const TorchOps torch;
  for (const char* name : {"order:sequential", "order:prefill=blocked:32,decode=kahan"})
    for (const DType dtype : kDtypes) {
      const OrderOps ops(parse_reductions(name));
      const double unit = dtype == DType::float16 ? 0x1p-11 : dtype == DType::bfloat16 ? 0x1p-8 : dtype == DType::float32 ? 0x1p-24 : 0x1p-53;
      const auto expect_near = [&](const at::Tensor& a, const at::Tensor& b, double roundings, const char* what) {
        ASSERT_EQ(a.scalar_type(), b.scalar_type()) << what;
        ASSERT_EQ(a.sizes(), b.sizes()) << what;
        const Values x = to_doubles(a), y = to_doubles(b);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::abs(x[i] - y[i]), roundings * unit * std::max(1.0, std::abs(y[i]))) << what << " " << name_of(dtype);
      };
      for (const std::int64_t T : {1, 6}) {
        const at::Tensor x = normals({1, T, 40}, 8, dtype), y = normals({1, T, 40}, 9, dtype), w = normals({40}, 10, dtype), m = normals({30, 40}, 11, dtype) * 0.2;
        expect_near(ops.linear(x, {ops.pack(m), 30}), torch.linear(x, {m, 30}), 8, "linear");
        for (const NormParams p : {NormParams{1e-6, 0.0, true}, NormParams{1e-5, 1.0, false}, NormParams{1e-5, 1.0, true}})
          expect_near(ops.rms_norm(x, w, p), torch.rms_norm(x, w, p), 6, "rms_norm");
        for (const Activation a : {Activation::silu, Activation::gelu_tanh}) expect_near(ops.gated(x, y, a), torch.gated(x, y, a), 6, "gated");
        expect_near(ops.soft_cap(x, 1.5), torch.soft_cap(x, 1.5), 6, "soft_cap");
        const at::Tensor logs = ops.log_softmax(x), expected = torch.log_softmax(x);
        ASSERT_EQ(logs.scalar_type(), expected.scalar_type());
        EXPECT_LT(max_abs_difference(to_doubles(logs), to_doubles(expected)), dtype == DType::float64 ? 1e-14 : 2e-6);
      }
    }
}

struct AttentionCase {
  std::int64_t T, S;
  std::optional<std::int64_t> window;
  std::optional<double> cap;
};

/// The threads of our own kernels: what ThreadSanitizer is to look at.
TEST(OrderOps, ThreadsChangeNothing) {
  const int before = at::get_num_threads();
  for (const char* name : {"order:prefill=pairwise,decode=blocked:4", "order:sequential@float16"})
    for (const DType dtype : kDtypes) {
      const OrderOps ops(parse_reductions(name));
      const at::Tensor x = normals({1, 5, 48}, 21, dtype), w = normals({70, 48}, 22, dtype);
      const at::Tensor q = normals({1, 6, 5, 16}, 23, dtype), k = normals({1, 3, 9, 16}, 24, dtype);
      const Matrix packed{ops.pack(w), 70};
      std::vector<at::Tensor> results;
      for (const int n : {1, 2, 3}) {
        at::set_num_threads(n);
        results.push_back(ops.linear(x, packed));
        results.push_back(ops.attention(q, k, k, visibility(4, 5, 0, 9, {}), {0.2, {}}, {}));
      }
      for (std::size_t i = 2; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], results[i % 2])) << name;
    }
  at::set_num_threads(before);
}

TEST(OrderOps, AttentionIsThatOfTheTorchBackendAndTapsChangeNoBit) {
  const TorchOps torch;
  const OrderOps ops(parse_reductions("order:prefill=pairwise,decode=blocked:4"));
  for (const DType dtype : kDtypes)
    for (const auto& [T, S, window, cap] : {AttentionCase{1, 20, {}, {}}, AttentionCase{6, 20, {}, {}}, AttentionCase{6, 20, 4, 1.5}, AttentionCase{1, 4, 4, 0.5}, AttentionCase{9, 9, 3, {}}}) {
      const at::Tensor q = normals({1, 4, T, 24}, 12, dtype), k = normals({1, 2, S, 24}, 13, dtype), v = normals({1, 2, S, 24}, 14, dtype);
      const at::Tensor mask = visibility(S - T, T, 0, S, window);
      const AttentionParams p{0.2, cap};
      Watcher torch_tap, tap;
      const at::Tensor expected = torch.attention(q, k, v, mask, p, {&torch_tap, 0}), got = ops.attention(q, k, v, mask, p, {&tap, 0});
      EXPECT_TRUE(at::equal(got, ops.attention(q, k, v, mask, p, {})));
      const double limit = dtype == DType::float16 ? 4e-3 : dtype == DType::bfloat16 ? 4e-2 : dtype == DType::float32 ? 1e-6 : 1e-14;
      ASSERT_EQ(tap.seen.size(), torch_tap.seen.size());
      for (std::size_t i = 0; i < tap.seen.size(); ++i) {
        const auto& [site, x] = tap.seen[i];
        const auto& [torch_site, y] = torch_tap.seen[i];
        EXPECT_EQ(site, torch_site);
        ASSERT_EQ(x.sizes(), y.sizes());
        EXPECT_LT(max_abs_difference(to_doubles(x), to_doubles(y)), limit * std::max(1.0, max_abs(y))) << static_cast<int>(site);
      }
      EXPECT_LT(max_abs_difference(to_doubles(got), to_doubles(expected)), limit);
    }
}

// With one spec a query's row does not depend on the rows beside it, nor on keys that it does not see, whatever they hold
// and whether they come before, after or between.
TEST(OrderOps, HiddenKeysAndOtherRowsTakeNoPart) {
  for (const DType dtype : kDtypes)
    for (const ReductionSpec& spec : all_specs()) {
      const OrderOps ops({spec, spec});
      const at::Tensor q = normals({1, 4, 5, 16}, 15, dtype), k = normals({1, 2, 40, 16}, 16, dtype), v = normals({1, 2, 40, 16}, 17, dtype);
      const at::Tensor mask = visibility(35, 5, 0, 40, 7);
      const at::Tensor all = ops.attention(q, k, v, mask, {0.25, {}}, {});
      for (std::int64_t t = 0; t < 5; ++t) {
        const std::int64_t first = 35 + t - 6;
        const at::Tensor alone = ops.attention(q.narrow(2, t, 1), k.narrow(2, first, 7), v.narrow(2, first, 7), {}, {0.25, {}}, {});
        ASSERT_TRUE(at::equal(all.narrow(1, t, 1), alone)) << spec.name() << " " << t;
      }
      at::Tensor gaps = at::ones({1, 9}, at::kBool);
      for (const std::int64_t s : {0, 3, 4, 8}) gaps[0][s] = false;
      const at::Tensor keep = at::tensor({1, 2, 5, 6, 7}, at::kLong);
      const at::Tensor one = q.narrow(2, 0, 1), k9 = k.narrow(2, 0, 9), v9 = v.narrow(2, 0, 9);
      ASSERT_TRUE(at::equal(ops.attention(one, k9, v9, gaps, {0.25, {}}, {}), ops.attention(one, k9.index_select(2, keep), v9.index_select(2, keep), {}, {0.25, {}}, {}))) << spec.name();
    }
}

}  // namespace
}  // namespace kvdiv::test
