// The operations that sum, each against FP64 written out by hand, with bounds on both sides where rounding must show.
#include "numerics/torch_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvdiv/base/error.h"
#include "kvdiv/model/mask.h"
#include "kvdiv/numerics/switches.h"

namespace kvdiv {
namespace {

at::Tensor doubles(const at::Tensor& t) { return t.to(at::kDouble); }

double max_abs(const at::Tensor& t) { return t.abs().max().item().toDouble(); }

/// softmax(cap(q·kᵀ·scale) where visible)·v in FP64, one head at a time, no library attention.
at::Tensor attention_by_hand(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t first_query,
                             std::int64_t first_key, std::optional<std::int64_t> window, const AttentionParams& p) {
  const std::int64_t H = q.size(1), R = H / k.size(1), T = q.size(2), S = k.size(2), D = q.size(3);
  at::Tensor out = at::full({1, T, H * D}, 0.0, at::kDouble);
  const at::Tensor Q = doubles(q), K = doubles(k), V = doubles(v);
  for (std::int64_t h = 0; h < H; ++h)
    for (std::int64_t t = 0; t < T; ++t) {
      std::vector<double> e(static_cast<std::size_t>(S), 0.0);
      double total = 0.0;
      for (std::int64_t s = 0; s < S; ++s) {
        if (!is_visible(first_query + t, first_key + s, window)) continue;
        double score = (Q[0][h][t] * K[0][h / R][s]).sum().item().toDouble() * p.scale;
        if (p.cap) score = *p.cap * std::tanh(score / *p.cap);
        total += e[static_cast<std::size_t>(s)] = std::exp(score);
      }
      at::Tensor row = at::full({D}, 0.0, at::kDouble);
      for (std::int64_t s = 0; s < S; ++s) row = row + V[0][h / R][s] * (e[static_cast<std::size_t>(s)] / total);
      out[0][t].narrow(0, h * D, D).copy_(row);
    }
  return out;
}

struct Case {
  std::int64_t T, S;
  std::optional<std::int64_t> window;
  std::optional<double> cap;
};

/// B8: one query among 16 keys, and a chunk of three: the mask is anchored at the bottom right. A wrong anchor is off by
/// the size of the values.
TEST(Attention, IsWhatTheDefinitionSays) {
  for (const bool sdpa : {false, true})
    for (const auto& [T, S, window, cap] : {Case{1, 16, {}, {}}, Case{3, 16, {}, {}}, Case{16, 16, {}, {}}, Case{5, 9, 4, {}},
                                            Case{1, 4, 4, {}}, Case{6, 6, 2, 1.5}, Case{3, 16, {}, 0.5}}) {
      if (sdpa && cap) continue;
      const std::int64_t first_query = S - T;
      const at::Tensor q = at::randn({1, 4, T, 8}, at::kFloat), k = at::randn({1, 2, S, 8}, at::kFloat), v = at::randn({1, 2, S, 8}, at::kFloat);
      const AttentionParams params{0.4, cap};
      const TorchOps eager;
      const TorchSdpaOps fused;
      const Ops& ops = sdpa ? static_cast<const Ops&>(fused) : eager;
      const at::Tensor got = ops.attention(q, k, v, visibility(first_query, T, 0, S, window), params, {});
      const at::Tensor expected = attention_by_hand(q, k, v, first_query, 0, window, params);
      EXPECT_LT(max_abs(doubles(got) - expected), 1e-5) << T << "×" << S;
      const at::Tensor wrong = attention_by_hand(q, k, v, 0, 0, window, params);
      if (T < S) {
        EXPECT_GT(max_abs(wrong - expected), 1e-2) << "the test sees a wrong anchor";
      }
    }
}

/// B5: a mask that hides nothing and no mask are the same, bit for bit.
TEST(Attention, AnAllVisibleMaskChangesNoBit) {
  const TorchOps ops;
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor q = at::randn({1, 4, 1, 8}).to(dtype), k = at::randn({1, 2, 30, 8}).to(dtype), v = at::randn({1, 2, 30, 8}).to(dtype);
    EXPECT_TRUE(at::equal(ops.attention(q, k, v, {}, {0.3, {}}, {}), ops.attention(q, k, v, at::ones({1, 30}, at::kBool), {0.3, {}}, {})));
  }
}

/// B20: FP16 scores far below zero on a row with a hidden key stay finite; the hidden key has weight exactly zero.
TEST(Attention, HiddenKeysInHalfPrecisionStayFinite) {
  const TorchOps ops;
  const at::Tensor q = at::full({1, 1, 2, 1}, -20.0, at::kHalf), k = at::ones({1, 1, 2, 1}, at::kHalf);
  at::Tensor v = at::ones({1, 1, 2, 1}, at::kHalf);
  v[0][0][1][0] = 1000.0;  // hidden from the first query
  const at::Tensor out = ops.attention(q, k, v, visibility(0, 2, 0, 2, {}), {1.0, {}}, {});
  EXPECT_EQ(out[0][0][0].item().toDouble(), 1.0);
  EXPECT_NEAR(out[0][1][0].item().toDouble(), 500.5, 0.5);
}

/// B21: no query is ever without a key: it sees itself.
TEST(Mask, EveryQuerySeesItself) {
  for (const auto window : {std::optional<std::int64_t>(), std::optional<std::int64_t>(2), std::optional<std::int64_t>(5)})
    for (std::int64_t first = 0; first < 9; ++first) {
      const at::Tensor m = visibility(first, 4, 0, first + 4, window);
      if (!m.defined()) continue;
      for (std::int64_t t = 0; t < 4; ++t) {
        EXPECT_TRUE(m[t][first + t].item().toBool());
        const auto seen = m[t].sum().item().toLong();
        EXPECT_EQ(seen, window ? std::min(*window, first + t + 1) : first + t + 1);
      }
    }
}

TEST(Mask, NoMaskWhereNothingIsHidden) {
  EXPECT_FALSE(visibility(15, 1, 0, 16, {}).defined());
  EXPECT_FALSE(visibility(15, 1, 12, 4, 4).defined());
  EXPECT_TRUE(visibility(15, 1, 11, 5, 4).defined());
  EXPECT_TRUE(visibility(0, 2, 0, 2, {}).defined());
}

/// A product of one row is folded to two dimensions: a row cut out of a longer block gives the bits of the row alone.
TEST(Linear, ACutOutRowGivesTheBitsOfTheRowAlone) {
  const TorchOps ops;
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat})
    for (const std::int64_t K : {48, 64, 576}) {
      const at::Tensor x = at::randn({1, 7, K}).to(dtype), w = at::randn({96, K}).to(dtype);
      const at::Tensor cut = ops.linear(x.narrow(1, 6, 1), {w, w.size(0)}), alone = ops.linear(x.narrow(1, 6, 1).clone(), {w, w.size(0)});
      EXPECT_TRUE(at::equal(cut, alone)) << K;
    }
}

/// Rounded once to the compute dtype, at the place where the reference rounds: compare with FP64 from both sides.
TEST(RmsNorm, RoundsWhereTheReferenceRounds) {
  const TorchOps ops;
  const at::Tensor x = at::randn({1, 5, 64}).to(at::kHalf), w = (at::rand({64}) * 0.5 + 0.75).to(at::kHalf);
  const at::Tensor X = doubles(x), W = doubles(w);
  const at::Tensor normed = X / (X.pow(2).mean(-1, true) + 1e-5).sqrt();
  const double ulp = std::ldexp(1.0, -11);  // relative rounding of FP16
  for (const bool before : {true, false}) {
    const at::Tensor got = doubles(ops.rms_norm(x, w, {1e-5, before ? 0.0 : 1.0, before}));
    const at::Tensor exact = before ? normed * W : normed * (W + 1.0);
    const double worst = max_abs((got - exact) / exact);
    EXPECT_GT(worst, 0.3 * ulp);
    EXPECT_LT(worst, (before ? 2.2 : 1.1) * ulp) << "rounding before the weight rounds twice";
  }
}

TEST(Sdpa, RefusesACap) {
  EXPECT_EQ(make_ops("torch", "eager")->unsupported({true}), "");
  EXPECT_NE(make_ops("torch", "sdpa")->unsupported({true}).find("--attention eager"), std::string::npos);
  EXPECT_EQ(make_ops("torch", "sdpa")->unsupported({false}), "");
  EXPECT_THROW(make_ops("torch", "flash"), Error);
  EXPECT_THROW(make_ops("tensorrt", "eager"), Error);
}

TEST(Switches, AreSetReadBackAndRestored) {
  const NumericSwitches before = read_switches();
  NumericSwitches wanted;
  wanted.n_threads = 2;
  wanted.allow_tf32 = true;
  wanted.allow_fp16_reduced_reduction = true;
  wanted.allow_bf16_reduced_reduction = true;
  {
    const NumericGuard guard(wanted);
    const NumericSwitches now = read_switches();
    EXPECT_EQ(now.n_threads, 2);
    EXPECT_TRUE(now.deterministic_algorithms && now.allow_tf32 && now.allow_fp16_reduced_reduction && now.allow_bf16_reduced_reduction);
  }
  const NumericSwitches after = read_switches();
  EXPECT_EQ(after.n_threads, before.n_threads);
  EXPECT_EQ(after.deterministic_algorithms, before.deterministic_algorithms);
  EXPECT_EQ(after.allow_tf32, before.allow_tf32);
  EXPECT_EQ(after.allow_fp16_reduced_reduction, before.allow_fp16_reduced_reduction);
}

}  // namespace
}  // namespace kvdiv
