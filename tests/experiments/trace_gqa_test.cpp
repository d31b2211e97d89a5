// What `trace` says of keys and values that query heads share, against cases whose answer is known.
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "experiments/trace_gqa.h"
#include "support/experiment.h"

namespace kvdiv::test {
namespace {

TraceParams few(std::int64_t n_prompts, std::int64_t n_draws) {
  TraceParams p;
  p.gqa_prompts = n_prompts;
  p.gqa_draws = n_draws;
  return p;
}

GqaResult gqa(Fixture& f, const TraceParams& params, Decoder& base) {
  Context context = f.context();
  return run_gqa(context, params, base);
}

Decoder base_of(const std::string& name) { return std::move(load(toy_dir(name), DType::float64).decoder); }

std::vector<double> logits(const Decoder& decoder, const Fixture& f) {
  return host_logits(decoder.forward(f.prompts[0].ids, nullptr));
}

const at::Tensor& weight(Decoder& decoder, const std::string& name) {
  for (const NamedWeight& w : decoder.weights())
    if (w.name == name) return *w.tensor;
  fail(ErrorKind::internal, "no weight {}", name);
}

/// Rows of a KV head's projection.
std::vector<double> head_rows(Decoder& decoder, const char* projection, std::int64_t head) {
  const std::int64_t D = decoder.config().sizes.head_dim;
  const at::Tensor& w = weight(decoder, fmt::format("model.layers.1.self_attn.{}.weight", projection));
  return to_doubles(w.narrow(0, head * D, D));
}

double value_of(const Json& row, const char* key) { return row[key]["value"].get<double>(); }

TEST(TraceGqa, VariantsOfEveryToy) {
  const auto describe = [](std::int64_t n_heads, std::int64_t n_kv_heads) {
    ModelSizes sizes;
    sizes.n_heads = n_heads, sizes.n_kv_heads = n_kv_heads;
    std::string out;
    for (const GqaVariant& v : gqa_variants(sizes)) out += fmt::format("{} {}; ", v.R, v.source);
    return out;
  };
  EXPECT_EQ(describe(8, 4), "1 repeated; 2 as is; 4 pooled; 8 pooled; ");
  EXPECT_EQ(describe(8, 2), "1 repeated; 2 repeated; 4 as is; 8 pooled; ");
  EXPECT_EQ(describe(4, 2), "1 repeated; 2 as is; 4 pooled; ");
  EXPECT_EQ(describe(24, 8), "1 repeated; 2 pooled; 3 as is; 4 pooled; 8 pooled; ");
  EXPECT_EQ(describe(12, 12), "1 as is; 2 pooled; 4 pooled; ");
}

TEST(TraceGqa, RepeatedHeadsAreTheSameFunctionAndPooledOnesTheMean) {
  Fixture f = toy("toy-llama", 1);
  Decoder base = base_of("toy-llama");
  const auto ops = make_ops("torch", "eager");
  const auto expected = logits(base, f);
  for (const std::int64_t R : {1, 2})
    EXPECT_LT(max_abs_difference(logits(make_variant(base, ops, R, false), f), expected), 1e-10) << R;
  for (const std::int64_t R : {1, 2, 4, 8}) {
    Decoder shared = make_variant(base, ops, R, false), copies = make_variant(base, ops, R, true);
    EXPECT_EQ(shared.config().sizes.n_kv_heads, 8 / R);
    EXPECT_EQ(copies.config().sizes.n_kv_heads, 8);
    const auto own = logits(shared, f);
    EXPECT_LT(max_abs_difference(logits(copies, f), own), 1e-10) << R;
    if (R > 2) { EXPECT_GT(max_abs_difference(own, expected), 1e-3) << R; }
  }
  Decoder pooled = make_variant(base, ops, 4, false);
  for (const char* projection : {"k_proj", "v_proj"})
    for (std::int64_t g = 0; g < 2; ++g) {
      const auto a = head_rows(base, projection, 2 * g), b = head_rows(base, projection, 2 * g + 1);
      const auto mean = head_rows(pooled, projection, g);
      for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], (a[i] + b[i]) / 2, 1e-12);
    }
  EXPECT_EQ(head_rows(base, "q_proj", 5), head_rows(pooled, "q_proj", 5));
}

// One query head a KV head: there is nothing to share, and the noise is the same by address.
TEST(TraceGqa, WithoutSharingThereIsNoAmplification) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 2);
    // Longer than the windows of the toys that have them.
    for (PromptItem& p : f.prompts)
      while (p.ids.size() < 60) p.ids.push_back(p.ids[p.ids.size() / 2]);
    Decoder base = base_of(name);
    const GqaResult r = gqa(f, few(2, 2), base);
    EXPECT_TRUE(r.complete);
    EXPECT_LT(r.copies_max_rel, 1e-10) << name;
    EXPECT_LT(r.attention_max_rel, 1e-10) << name;
    const Json& row = r.rows[0];
    EXPECT_EQ(row["R"], 1);
    EXPECT_EQ(row["amplification"]["value"], 1.0);
    EXPECT_NEAR(value_of(row, "amplification_one_layer"), 1.0, 1e-9);
    EXPECT_TRUE(row["corr_shared"]["value"].is_null());
    EXPECT_EQ(std::ssize(r.by_layer), std::ssize(r.rows) * f.config.sizes.n_layers);
  }
}

/// All query heads are the first one, in what they ask and in what their answer does: shared errors add up in full.
Decoder with_equal_heads(const std::string& name) {
  Decoder decoder = base_of(name);
  const ModelSizes& s = decoder.config().sizes;
  const c10::InferenceMode inference;
  for (const NamedWeight& w : decoder.weights()) {
    if (w.name.ends_with("q_proj.weight")) *w.tensor = w.tensor->narrow(0, 0, s.head_dim).repeat({s.n_heads, 1});
    if (w.name.ends_with("o_proj.weight")) *w.tensor = w.tensor->narrow(1, 0, s.head_dim).repeat({1, s.n_heads});
  }
  return decoder;
}

TEST(TraceGqa, HeadsThatDoTheSameAmplifyByTheSquareRootOfTheirNumber) {
  Fixture f = toy("toy-llama", 3);
  Decoder base = with_equal_heads("toy-llama");
  const GqaResult r = gqa(f, few(3, 48), base);
  ASSERT_EQ(r.rows.size(), 4u);
  for (const Json& row : r.rows) {
    const double expected = std::sqrt(row["R"].get<double>());
    EXPECT_DOUBLE_EQ(row["sqrt_r"].get<double>(), expected);
    EXPECT_NEAR(value_of(row, "amplification") / expected, 1.0, 0.1) << row;
    EXPECT_NEAR(value_of(row, "amplification_one_layer") / expected, 1.0, 0.1) << row;
    if (row["R"] != 1) { EXPECT_NEAR(value_of(row, "corr_shared"), 1.0, 1e-9) << row; }
    if (row["R"] != 8) { EXPECT_NEAR(value_of(row, "corr_other"), 0.0, 0.1) << row; }
  }
}

/// Heads of a group whose answers are subtracted from each other: what they share cancels.
TEST(TraceGqa, HeadsThatCancelDoNotAmplify) {
  Fixture f = toy("toy-llama", 2);
  Decoder base = with_equal_heads("toy-llama");
  {
    const c10::InferenceMode inference;
    const ModelSizes& s = base.config().sizes;
    for (const NamedWeight& w : base.weights())
      if (w.name.ends_with("o_proj.weight"))
        for (std::int64_t head = 1; head < s.n_heads; head += 2)
          w.tensor->narrow(1, head * s.head_dim, s.head_dim).neg_();
  }
  const GqaResult r = gqa(f, few(2, 4), base);
  for (const Json& row : r.rows)
    if (row["R"] != 1) { EXPECT_LT(value_of(row, "amplification"), 1e-6) << row; }
}

TEST(TraceGqa, CorrelationOfHeadsByHand) {
  // Heads 0, 1 share, and 2, 3: cosines 0.6 and −1 among those, 0 and ±0.8 and ±0.6 between them.
  const std::vector<std::vector<double>> errors{{1, 0}, {3, 4}, {0, 2}, {0, -5}};
  at::Tensor gram = at::empty({4, 4}, at::TensorOptions().dtype(at::kDouble));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      const auto &a = errors[static_cast<std::size_t>(i)], &b = errors[static_cast<std::size_t>(j)];
      gram.mutable_data_ptr<double>()[i * 4 + j] = a[0] * b[0] + a[1] * b[1];
    }
  const HeadCorrelation c = correlate_heads(gram, 2);
  EXPECT_NEAR(*c.shared, (0.6 - 1.0) / 2, 1e-15);
  EXPECT_NEAR(*c.other, (0.0 + 0.0 + 0.8 - 0.8) / 4, 1e-15);
  EXPECT_FALSE(correlate_heads(gram, 1).shared);
  EXPECT_FALSE(correlate_heads(gram, 4).other);
  gram.zero_();
  EXPECT_FALSE(correlate_heads(gram, 2).shared);
}

TEST(TraceGqa, NoiseIsAddressedAndOfItsSize) {
  const KvNoise noise{1e-3, 17, 3};
  const at::Tensor x = at::add(at::zeros({1, 4, 40, 16}, at::TensorOptions().dtype(at::kDouble)), 2.0);
  const auto noisy = to_doubles(noise.apply(x, 1, false));
  double sum = 0.0, squares = 0.0;
  for (const double v : noisy) sum += v / 2.0 - 1.0, squares += std::pow(v / 2.0 - 1.0, 2);
  const auto n = static_cast<double>(noisy.size());
  EXPECT_NEAR(sum / n, 0.0, 4e-3 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 1e-3, 4e-3 / std::sqrt(2.0 * n));
  // Fewer positions or heads: the same numbers where they are.
  EXPECT_EQ(to_doubles(noise.apply(x.narrow(2, 0, 7), 1, false)),
            to_doubles(noise.apply(x, 1, false).narrow(2, 0, 7)));
  EXPECT_EQ(to_doubles(noise.apply(x.narrow(1, 0, 2), 1, false)),
            to_doubles(noise.apply(x, 1, false).narrow(1, 0, 2)));
  std::set<std::vector<double>> all{noisy};
  all.insert(to_doubles(noise.apply(x, 1, true)));
  all.insert(to_doubles(noise.apply(x, 2, false)));
  all.insert(to_doubles(KvNoise{1e-3, 17, 4}.apply(x, 1, false)));
  all.insert(to_doubles(KvNoise{1e-3, 18, 3}.apply(x, 1, false)));
  EXPECT_EQ(all.size(), 5u);
  EXPECT_NE(to_doubles(noise.apply(x, 1, false).select(1, 0)), to_doubles(noise.apply(x, 1, false).select(1, 1)));
}

TEST(TraceGqa, AnInterruptLeavesItIncomplete) {
  Fixture f = toy("toy-llama", 2);
  f.progress.interrupt_after = 1;
  Decoder base = base_of("toy-llama");
  const GqaResult r = gqa(f, few(2, 1), base);
  set_interrupted(false);
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(r.rows.empty());
}

}  // namespace
}  // namespace kvdiv::test
