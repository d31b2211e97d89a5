// Each trait, flipped, moves the logits; no tap and an observing tap leave every bit.
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/models.h"

namespace kvdiv::test {
namespace {

const std::vector<TokenId>& prompt() {
  static const std::vector<TokenId> ids{3, 17, 42, 8, 77, 5, 61, 29, 90, 13, 54};
  return ids;
}

struct Flip {
  std::string name, model;
  std::function<void(Traits&)> change;
};

class TraitFlip : public testing::TestWithParam<Flip> {};

TEST_P(TraitFlip, MovesTheLogits) {
  const auto& [name, model, change] = GetParam();
  const Decoder plain = load_changed(golden_dir(model), DType::float64, [](ModelConfig&) {});
  const Decoder flipped = load_changed(golden_dir(model), DType::float64, [&](ModelConfig& c) { change(c.traits); });
  const auto before = to_doubles(plain.forward(prompt(), nullptr)), after = to_doubles(flipped.forward(prompt(), nullptr));
  const double moved = max_abs_difference(before, after);
  EXPECT_GT(moved, 1e-3) << "float64 logits of the two arms agree to 1e-12: this is no rounding";
  EXPECT_LT(moved, 1e3);
}

INSTANTIATE_TEST_SUITE_P(
    All, TraitFlip,
    testing::Values(
        Flip{"norm_offset", "tiny-gemma2", [](Traits& t) { t.norm_offset = 0.0; }},
        Flip{"embedding_scale", "tiny-gemma2", [](Traits& t) { t.embedding_scale.reset(); }},
        Flip{"activation", "tiny-gemma2", [](Traits& t) { t.activation = Activation::silu; }},
        Flip{"sandwich_norms", "tiny-gemma2", [](Traits& t) { t.sandwich_norms = false; }},
        Flip{"query_scale", "tiny-gemma2", [](Traits& t) { t.query_scale = 0.25; }},
        Flip{"attention_cap", "tiny-gemma2", [](Traits& t) { t.attention_cap.reset(); }},
        Flip{"final_cap", "tiny-gemma2", [](Traits& t) { t.final_cap.reset(); }},
        Flip{"windows", "tiny-gemma2", [](Traits& t) { for (auto& w : t.windows) w.reset(); }},
        Flip{"window_of_mistral", "tiny-mistral", [](Traits& t) { for (auto& w : t.windows) w = *w + 1; }},
        Flip{"tied_head", "tiny-llama", [](Traits& t) { t.tied_head = true; }}),
    [](const auto& info) { return info.param.name; });

/// The order of the norm's cast is a matter of rounding: it shows in 16 bits and, by definition, not in FP64.
TEST(Traits, NormCastMovesBitsIn16Bits) {
  const auto flip = [](ModelConfig& c) {
    c.traits.norm_cast = c.traits.norm_cast == NormCast::before_weight ? NormCast::after_weight : NormCast::before_weight;
  };
  for (const auto& [dtype, low, high] : {std::tuple{DType::float16, 1e-4, 0.3}, std::tuple{DType::bfloat16, 1e-3, 3.0}, std::tuple{DType::float64, 0.0, 1e-12}}) {
    const Decoder plain = load_changed(golden_dir("tiny-llama"), dtype, [](ModelConfig&) {});
    const Decoder flipped = load_changed(golden_dir("tiny-llama"), dtype, flip);
    const double moved = max_abs_difference(to_doubles(plain.forward(prompt(), nullptr)), to_doubles(flipped.forward(prompt(), nullptr)));
    EXPECT_GE(moved, low) << name_of(dtype);
    EXPECT_LE(moved, high) << name_of(dtype);
  }
}

class Observer : public Tap {
 public:
  bool wants(Site, std::int64_t) const override { return true; }
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& t) override {
    ++n_visits;
    sites.insert(site);
    n_layers = std::max(n_layers, layer);
    return t;
  }
  std::int64_t n_visits = 0, n_layers = 0;
  std::set<Site> sites;
};

TEST(Tap, ObservingChangesNoBit) {
  for (const std::string& name : golden_models())
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32}) {
      const LoadedModel model = load(golden_dir(name), dtype);
      Observer tap;
      EXPECT_EQ(to_doubles(model.decoder.forward(prompt(), nullptr)), to_doubles(model.decoder.forward(prompt(), nullptr, &tap)));
      std::vector<TokenId> longer;  // past the sizes at which vendor kernels change
      for (TokenId i = 0; i < 163; ++i) longer.push_back((5 * i + 1) % model.decoder.config().sizes.vocab);
      EXPECT_EQ(to_doubles(model.decoder.forward(longer, nullptr)), to_doubles(model.decoder.forward(longer, nullptr, &tap)));
      EXPECT_EQ(tap.n_layers, model.decoder.config().sizes.n_layers);
      const bool caps = model.decoder.config().traits.attention_cap.has_value();
      EXPECT_EQ(tap.sites.size(), caps ? 25u : 22u) << "every site is visited; Gemma-2 has a cap and two norms more";
    }
}

TEST(Tap, ReplacingReachesTheLogits) {
  class Scale : public Tap {
   public:
    explicit Scale(Site s) : site_(s) {}
    bool wants(Site site, std::int64_t layer) const override { return site == site_ && (layer == 1 || site >= Site::final_norm || site == Site::embedding); }
    at::Tensor visit(Site, std::int64_t, const at::Tensor& t) override { return at::mul(t, 1.5); }

   private:
    Site site_;
  };
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float64);
  const auto plain = to_doubles(model.decoder.forward(prompt(), nullptr));
  for (int site = 0; site <= static_cast<int>(Site::logits); ++site) {
    Scale tap{static_cast<Site>(site)};
    EXPECT_GT(max_abs_difference(plain, to_doubles(model.decoder.forward(prompt(), nullptr, &tap))), 1e-9) << site;
  }
}

/// B32: layers are named: 0 embeddings, 1 … L block outputs before the final norm, then the norm.
TEST(Tap, HiddenStatesAreThoseOfTheReference) {
  class Hidden : public Tap {
   public:
    bool wants(Site s, std::int64_t) const override { return s == Site::embedding || s == Site::block || s == Site::final_norm; }
    at::Tensor visit(Site, std::int64_t, const at::Tensor& t) override {
      rows.push_back(to_doubles(t.select(1, t.size(1) - 1)));
      return t;
    }
    std::vector<std::vector<double>> rows;
  };
  for (const std::string& name : golden_models()) {
    const Golden golden(name);
    const LoadedModel model = load(golden_dir(name), DType::float64);
    Hidden tap;
    model.decoder.forward(golden.ids("ids"), nullptr, &tap);
    ASSERT_EQ(static_cast<std::int64_t>(tap.rows.size()), golden.n_rows("hidden.float64"));
    for (std::size_t i = 0; i < tap.rows.size(); ++i) {
      const auto expected = golden.row("hidden.float64", static_cast<std::int64_t>(i));
      double scale = 0.0;
      for (const double v : expected) scale = std::max(scale, std::abs(v));
      EXPECT_LE(max_abs_difference(tap.rows[i], expected), 1e-12 * scale) << name << " row " << i;
    }
  }
}

}  // namespace
}  // namespace kvdiv::test
