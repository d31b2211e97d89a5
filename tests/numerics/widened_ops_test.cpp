// Backends with part of their arithmetic in FP32, and backends made of two. The backends underneath are `order:…` and
// `invariant`, whose bits are the same on every CPU.
#include "kvdiv/numerics/widened_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"
#include "kvdiv/numerics/routed_ops.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

at::Tensor normals(at::IntArrayRef shape, std::uint32_t purpose) {
  at::Tensor out = at::empty(shape, at::kFloat);
  fill_standard_normals({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, {purpose, 0, 0});
  return out;
}

std::shared_ptr<const Ops> sequential() { return make_ops("order:sequential", "eager"); }

struct Operands {
  at::Tensor q = normals({1, 4, 3, 16}, 1), k = normals({1, 2, 9, 16}, 2), v = normals({1, 2, 9, 16}, 3);
  AttentionParams params{0.25, std::nullopt};
  at::Tensor attend(const Ops& ops, c10::ScalarType dtype, Tap* tap = nullptr) const {
    const auto half = [&](const at::Tensor& x) { return x.to(at::kHalf).to(dtype); };
    return ops.attention(half(q), half(k), half(v), {}, params, {tap, 0});
  }
};

class Watch final : public Tap {
 public:
  bool wants(Site, std::int64_t) const override { return true; }
  at::Tensor visit(Site site, std::int64_t, const at::Tensor& tensor) override {
    seen.push_back({site, tensor.scalar_type()});
    return tensor;
  }
  std::vector<std::pair<Site, c10::ScalarType>> seen;
};

// A backend that sums in FP32 and rounds once has nothing to gain: the same bits, product by product.
TEST(WidenedOps, AccumulationIsWhatASequentialFp32SumGives) {
  const auto plain = sequential(), wide = float32_accumulation(plain);
  const at::Tensor x = normals({1, 5, 70}, 4).to(at::kHalf), w = plain->pack(normals({33, 70}, 5).to(at::kHalf));
  const at::Tensor y = wide->linear(x, {w, 33});
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_TRUE(y.equal(plain->linear(x, {w, 33})));
  const Operands operands;
  EXPECT_TRUE(operands.attend(*wide, at::kHalf).equal(operands.attend(*plain, at::kHalf))) << "a scale of 1/4 rounds nothing";
}

// 2048 + 1 is 2048 in FP16: an FP16 accumulator stalls, what is widened for FP32 accumulators does not.
TEST(WidenedOps, AccumulationDoesNotStall) {
  at::Tensor x = at::ones({1, 1, 129}, at::kHalf);
  x.select(2, 0).fill_(2048.0);
  const auto narrow = make_ops("order:sequential@float16", "eager"), wide = float32_accumulation(sequential());
  const at::Tensor w = narrow->pack(at::ones({1, 129}, at::kHalf));
  EXPECT_EQ(narrow->linear(x, {w, 1}).item().toDouble(), 2048.0);
  EXPECT_EQ(wide->linear(x, {w, 1}).item().toDouble(), 2176.0);
}

TEST(WidenedOps, AccumulationShowsATapWhatIsStored) {
  Watch watch;
  const Operands operands;
  const at::Tensor seen = operands.attend(*float32_accumulation(sequential()), at::kHalf, &watch);
  ASSERT_EQ(watch.seen.size(), 3u);
  for (const auto& [site, dtype] : watch.seen) EXPECT_EQ(dtype, at::kHalf) << static_cast<int>(site);
  EXPECT_TRUE(seen.equal(operands.attend(*float32_accumulation(sequential()), at::kHalf)));
}

// Rounded once: within half an ulp of the exact result (and FP32's own error), which the same in FP16 is not.
TEST(WidenedOps, AttentionInFp32IsRoundedOnce) {
  const Operands operands;
  const auto exact = to_doubles(operands.attend(*sequential(), at::kDouble));
  const auto worst_of = [&](const Ops& ops) {
    const auto found = to_doubles(operands.attend(ops, at::kHalf));
    double worst = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::fabs(found[i] - exact[i]) / ulp_of_half(exact[i]));
    return worst;
  };
  const double once = worst_of(*float32_attention(sequential(), sequential()));
  EXPECT_LE(once, 0.51);
  EXPECT_GE(once, 0.3) << "a rounding there is";
  EXPECT_GT(worst_of(*sequential()), 0.6);
}

TEST(WidenedOps, ArithmeticInFp32LeavesTheWeightsAsTheyAre) {
  const auto plain = sequential(), wide = float32_arithmetic(plain);
  const at::Tensor w = normals({33, 70}, 5).to(at::kHalf), x = normals({1, 2, 70}, 4);
  const at::Tensor packed = wide->pack(w);
  EXPECT_EQ(packed.scalar_type(), at::kHalf);
  EXPECT_TRUE(wide->linear(x, {packed, 33}).equal(plain->linear(x, {plain->pack(w.to(at::kFloat)), 33})));
  const at::Tensor gain = normals({70}, 6).to(at::kHalf);
  EXPECT_TRUE(wide->rms_norm(x, gain, {}).equal(plain->rms_norm(x, gain.to(at::kFloat), {})));
  at::Tensor ids = at::empty({1, 1}, at::kLong);
  ids.fill_(32);
  EXPECT_TRUE(wide->rows({packed, 33}, ids).equal(w.narrow(0, 32, 1).unsqueeze(0).to(at::kFloat)));
}

TEST(RoutedOps, EachKindGoesItsWay) {
  const auto usual = make_ops("order:pairwise", "eager"), fixed = make_ops("invariant", "eager");
  const at::Tensor x = normals({1, 4, 70}, 4), w = normals({33, 70}, 5);
  const at::Tensor by_usual = usual->pack(w), by_fixed = fixed->pack(w);
  RoutedOps ops(usual, fixed, OperationSet().with(Operation::down).with(Operation::norms));
  ops.assign(by_fixed, Operation::down);
  ops.assign(by_usual, Operation::o);
  EXPECT_TRUE(ops.linear(x, {by_fixed, 33}).equal(fixed->linear(x, {by_fixed, 33})));
  EXPECT_TRUE(ops.linear(x, {by_usual, 33}).equal(usual->linear(x, {by_usual, 33})));
  EXPECT_FALSE(ops.linear(x, {by_usual, 33}).equal(ops.linear(x, {by_fixed, 33}))) << "two orders: else this shows nothing";
  EXPECT_TRUE(ops.unpack({by_fixed, 33}).equal(w));
  EXPECT_TRUE(ops.rms_norm(x, w.select(0, 0), {}).equal(fixed->rms_norm(x, w.select(0, 0), {})));
  EXPECT_THROW(ops.linear(x, {w, 33}), Error) << "a matrix that nobody named";
}

// Rows of the last layer that nobody reads are computed all the same: left out, they would make the arms agree there.
TEST(RoutedOps, IsNeverRowInvariant) {
  const auto usual = make_ops("torch", "eager"), fixed = make_ops("invariant", "eager");
  RoutedOps rotary(usual, fixed, OperationSet().with(Operation::rotary)), all_but(usual, fixed, OperationSet(0x3FF).without(Operation::rotary));
  EXPECT_TRUE(rotary.place_invariant());
  EXPECT_FALSE(all_but.place_invariant());
  EXPECT_FALSE(rotary.row_invariant());
}

TEST(RoutedOps, SetsAndNames) {
  const OperationSet set = OperationSet().with(Operation::head).with(Operation::qkv);
  EXPECT_EQ(set.members(), (std::vector<Operation>{Operation::qkv, Operation::head}));
  EXPECT_EQ(set.size(), 2);
  EXPECT_EQ(set.without(Operation::head).without(Operation::qkv), OperationSet());
  EXPECT_EQ(operation_of_matrix("model.layers.3.self_attn.v_proj.weight"), Operation::qkv);
  EXPECT_EQ(operation_of_matrix("model.layers.3.self_attn.o_proj.weight"), Operation::o);
  EXPECT_EQ(operation_of_matrix("model.layers.3.mlp.up_proj.weight"), Operation::gate_up);
  EXPECT_EQ(operation_of_matrix("model.layers.3.mlp.down_proj.weight"), Operation::down);
  EXPECT_EQ(operation_of_matrix("model.embed_tokens.weight"), Operation::head);
  EXPECT_THROW(operation_of_matrix("model.norm.weight"), Error);
}

}  // namespace
}  // namespace kvdiv::test
