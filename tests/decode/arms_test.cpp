// What makes the two arms comparable: in FP64 they are the same function, whatever the window, the chunking, the length.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kvdiv/decode/stepper.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

std::vector<TokenId> prompt_of(std::int64_t length, std::int64_t vocab) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back((7 * i + 3) % vocab);
  return ids;
}

double scale_of(const std::vector<double>& logits) {
  double out = 0.0;
  for (const double v : logits) out = std::max(out, std::abs(v));
  return out;
}

void expect_arms_equal(const Decoder& decoder, std::int64_t prompt_length, std::int64_t chunk, std::int64_t n_steps) {
  SCOPED_TRACE(fmt::format("prompt {}, chunk {}", prompt_length, chunk));
  const auto prompt = prompt_of(prompt_length, decoder.config().sizes.vocab);
  CachedStepper on(decoder, prompt_length + n_steps, chunk);
  FullStepper off(decoder);
  at::Tensor a = on.prefill(prompt), b = off.prefill(prompt);
  for (std::int64_t step = 0; step < n_steps; ++step) {
    const auto x = to_doubles(a), y = to_doubles(b);
    ASSERT_LE(max_abs_difference(x, y), 1e-12 * scale_of(y)) << "step " << step;
    const TokenId token = (11 * step + 5) % decoder.config().sizes.vocab;
    a = on.step(token);
    b = off.step(token);
  }
  EXPECT_EQ(on.n_tokens_computed(), prompt_length + n_steps);
  EXPECT_EQ(off.n_tokens_computed(), (n_steps + 1) * prompt_length + n_steps * (n_steps + 1) / 2);
}

/// B25, B7, B6: windows are 5 (tiny-mistral) and 4 (tiny-gemma2); prompts shorter, equal and longer; positions count on.
TEST(Arms, AreTheSameFunctionInFp64) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const LoadedModel model = load(golden_dir(name), DType::float64);
    for (const std::int64_t prompt : {1, 3, 4, 5, 6, 7, 23})
      for (const std::int64_t chunk : {0, 1, 3, 8}) expect_arms_equal(model.decoder, prompt, chunk, 20);
  }
}

/// B1: the difference is ordered by dtype, and FP16's is not zero by promotion nor large by a fault.
TEST(Arms, DifferByRoundingOnly) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    std::map<DType, double> largest;
    for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
      const LoadedModel model = load(golden_dir(name), dtype);
      CachedStepper on(model.decoder, 64, 3);
      FullStepper off(model.decoder);
      const auto prompt = prompt_of(17, model.decoder.config().sizes.vocab);
      at::Tensor a = on.prefill(prompt), b = off.prefill(prompt);
      for (int step = 0; step < 24; ++step) {
        largest[dtype] = std::max(largest[dtype], max_abs_difference(to_doubles(a), to_doubles(b)));
        a = on.step(step % 7);
        b = off.step(step % 7);
      }
    }
    EXPECT_LE(largest[DType::float64], 1e-12);
    EXPECT_LE(largest[DType::float32], 1e-4);
    EXPECT_LE(largest[DType::float16], 0.1);
    EXPECT_LE(largest[DType::bfloat16], 1.0);
  }
}

/// B14: "split" may round differently, "repeat" may not.
TEST(Arms, RepeatIsBitEqual) {
  const LoadedModel model = load(golden_dir("tiny-mistral"), DType::float16);
  const auto prompt = prompt_of(23, model.decoder.config().sizes.vocab);
  CachedStepper on(model.decoder, 64);
  FullStepper off(model.decoder);
  const auto first_on = to_doubles(on.prefill(prompt)), first_off = to_doubles(off.prefill(prompt));
  EXPECT_EQ(first_on, first_off) << "step 0 is the same work in both arms";
  on.step(1);
  EXPECT_EQ(to_doubles(on.prefill(prompt)), first_on);
  EXPECT_EQ(on.cache().length(), 23) << "a new sequence starts at its own prompt's length";
  EXPECT_EQ(to_doubles(off.prefill(prompt)), first_off);
}

/// B16: a fork shares nothing with what it was made from.
TEST(Arms, ForkedCacheIsIndependent) {
  const LoadedModel model = load(golden_dir("tiny-llama"), DType::float16);
  KvCache cache = model.decoder.make_cache(40);
  const auto prompt = prompt_of(9, model.decoder.config().sizes.vocab);
  model.decoder.forward(prompt, &cache);
  const std::vector<TokenId> next{5}, other{6};
  KvCache a = cache.fork(), b = cache.fork();
  EXPECT_EQ(a.length(), 9);
  const auto from_a = to_doubles(model.decoder.forward(next, &a));
  model.decoder.forward(other, &cache);
  EXPECT_EQ(to_doubles(model.decoder.forward(next, &b)), from_a);
  EXPECT_EQ(a.length(), 10);
  EXPECT_EQ(cache.length(), 10);
}

/// B4: changing the last prompt token changes nothing before it, with an empty cache attached, in any dtype.
TEST(Arms, NoTokenSeesTheFuture) {
  class LastBut : public Tap {
   public:
    bool wants(Site site, std::int64_t layer) const override { return site == Site::block && layer == 2; }
    at::Tensor visit(Site, std::int64_t, const at::Tensor& t) override {
      seen = to_doubles(t.narrow(1, 0, t.size(1) - 1));
      return t;
    }
    std::vector<double> seen;
  };
  for (const std::string& name : golden_models()) {
    const LoadedModel model = load(golden_dir(name), DType::bfloat16);
    auto prompt = prompt_of(12, model.decoder.config().sizes.vocab);
    LastBut tap;
    KvCache first = model.decoder.make_cache(16), second = model.decoder.make_cache(16);
    model.decoder.forward(prompt, &first, &tap);
    const auto before = tap.seen;
    prompt.back() = (prompt.back() + 1) % model.decoder.config().sizes.vocab;
    model.decoder.forward(prompt, &second, &tap);
    EXPECT_EQ(tap.seen, before) << name;
  }
}

/// B22: which layers are local. Window 4, 8 tokens: changing token 0 cannot reach position 7 through a local layer alone.
TEST(Arms, LocalAndGlobalLayersAreWhatTheConfigSays) {
  for (const bool reversed : {false, true}) {
    Decoder decoder = load_changed(golden_dir("tiny-gemma2"), DType::float64, [&](ModelConfig& c) {
      for (std::size_t i = 0; i < c.traits.windows.size(); ++i)
        c.traits.windows[i] = (i % 2 == 0) != reversed ? std::optional<std::int64_t>(4) : std::nullopt;
    });
    class Blocks : public Tap {
     public:
      bool wants(Site site, std::int64_t) const override { return site == Site::block; }
      at::Tensor visit(Site, std::int64_t layer, const at::Tensor& t) override {
        at_7[layer] = to_doubles(t.select(1, 7));
        return t;
      }
      std::map<std::int64_t, std::vector<double>> at_7;
    } one, two;
    auto prompt = prompt_of(8, decoder.config().sizes.vocab);
    decoder.forward(prompt, nullptr, &one);
    prompt[0] += 1;
    decoder.forward(prompt, nullptr, &two);
    EXPECT_EQ(one.at_7[0] == two.at_7[0], !reversed);
    EXPECT_NE(one.at_7[1], two.at_7[1]);
  }
}

/// B19: prompts are decoded one by one, so a short one beside a long one cannot be disturbed.
TEST(Arms, APromptDoesNotDependOnItsNeighbours) {
  const LoadedModel model = load(golden_dir("tiny-llama"), DType::float32);
  const auto three = prompt_of(3, 90), nine = prompt_of(9, 90);
  CachedStepper fresh(model.decoder, 32), used(model.decoder, 32);
  used.prefill(nine);
  used.step(4);
  EXPECT_EQ(to_doubles(used.prefill(three)), to_doubles(fresh.prefill(three)));
}

/// B7: a cache that is too small is an error, never a truncation.
TEST(Cache, AppendingPastTheCapacityIsAnError) {
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float32);
  const auto prompt = prompt_of(5, 90);
  CachedStepper enough(model.decoder, 5 + 128), too_small(model.decoder, 5 + 127);
  enough.prefill(prompt);
  too_small.prefill(prompt);
  for (int i = 0; i < 127; ++i) {
    enough.step(i % 90);
    too_small.step(i % 90);
  }
  EXPECT_NO_THROW(enough.step(1));
  EXPECT_THROW(too_small.step(1), Error);
}

/// B17, B11: keys and values have the compute dtype on every path; nothing is promoted on the way.
TEST(Cache, StaysInTheComputeDtype) {
  class Dtypes : public Tap {
   public:
    bool wants(Site, std::int64_t) const override { return true; }
    at::Tensor visit(Site site, std::int64_t, const at::Tensor& t) override {
      seen[site].insert(t.scalar_type());
      return t;
    }
    std::map<Site, std::set<c10::ScalarType>> seen;
  };
  for (const std::string& name : golden_models())
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
      const LoadedModel model = load(golden_dir(name), dtype);
      Dtypes on_tap, off_tap;
      CachedStepper on(model.decoder, 400);
      FullStepper off(model.decoder);
      on.set_tap(&on_tap);
      off.set_tap(&off_tap);
      const auto prompt = prompt_of(300, model.decoder.config().sizes.vocab);  // past 256: no integers there in BF16
      on.prefill(prompt);
      on.step(3);
      off.prefill(prompt);
      EXPECT_EQ(on_tap.seen, off_tap.seen);
      for (const auto& [site, types] : on_tap.seen) {
        EXPECT_EQ(types.size(), 1u);
        EXPECT_EQ(*types.begin(), scalar_type(dtype)) << static_cast<int>(site);
      }
    }
}

}  // namespace
}  // namespace kvdiv::test
