// `mitigate`: remedies that must change nothing, remedies that must make the arms agree, and the search against operations
// whose dependence on the number of rows is planted, on backends whose bits are the same on every CPU.
#include "kvdiv/experiments/mitigate.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/mitigate_models.h"
#include "experiments/mitigate_summary.h"
#include "experiments/mitigate_walk.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

MitigateParams quick(const std::string& backend = "torch") {
  MitigateParams p;
  p.backend = {backend};
  p.max_steps = 6;
  p.no_search = true;
  return p;
}

ExperimentResult mitigate(Fixture& f, const MitigateParams& params) {
  Context context = f.context();
  return run_mitigate(context, params);
}

const Json& row_of(const ExperimentResult& r, const std::string& remedy) {
  for (const Json& row : r.conditions.at(0)["remedies"])
    if (row["remedy"] == remedy) return row;
  fail(ErrorKind::internal, "no row {}", remedy);
}

double mean_kl_of(const ExperimentResult& r, const std::string& remedy) { return row_of(r, remedy)["kl_on_off_nats"]["mean"].get<double>(); }

// ---- the compressed cache ----

struct GroupError {
  double scale = 0.0, worst = 0.0, rms = 0.0;
};

/// Of one group of [n], against the scale that the definition gives.
GroupError error_of(const std::vector<double>& before, const std::vector<double>& after, std::size_t first, std::size_t n, double largest) {
  GroupError e;
  for (std::size_t i = first; i < first + n; ++i) {
    const double d = std::fabs(after[i] - before[i]);
    e.scale = std::max(e.scale, std::fabs(before[i]) / largest);
    e.worst = std::max(e.worst, d);
    e.rms += d * d / static_cast<double>(n);
  }
  e.rms = std::sqrt(e.rms);
  return e;
}

at::Tensor normals(at::IntArrayRef shape, std::uint32_t purpose) {
  at::Tensor out = at::empty(shape, at::kFloat);
  fill_standard_normals({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, {purpose, 0, 0});
  return out;
}

// Between what a rounding to multiples of the scale must cost and what it may: the scale is at least max|x|/q, and at most one
// FP16 step above it.
TEST(QuantizedCache, ErrorsAreThoseOfOneRounding) {
  for (const int bits : {8, 4}) {
    const double largest = bits == 8 ? 127.0 : 7.0, step = 1.0 + 0x1p-10;
    for (const auto dtype : {at::kDouble, at::kHalf}) {
      const at::Tensor x = normals({1, 2, 50, 64}, 11).to(dtype);
      const auto before = to_doubles(x), after = to_doubles(quantize_dequantize(x, bits));
      const double stored = dtype == at::kHalf ? largest * 0x1p-11 : 0.0;  // the product, rounded to FP16
      double rms = 0.0;
      int n = 0;
      for (std::size_t first = 0; first < before.size(); first += 32, ++n) {
        const GroupError e = error_of(before, after, first, 32, largest);
        ASSERT_LE(e.worst, (0.5 + stored) * e.scale * step);
        ASSERT_GE(e.worst, 0.25 * e.scale) << "of 32 numbers one is near the middle";
        rms += e.rms / e.scale;
      }
      EXPECT_NEAR(rms / n, 1.0 / std::sqrt(12.0), 0.02) << bits;
    }
  }
}

TEST(QuantizedCache, GroupsHaveScalesOfTheirOwn) {
  at::Tensor x = normals({1, 1, 3, 40}, 12);
  x.narrow(3, 32, 8).mul_(1000.0);  // the rest behind a whole group
  const auto before = to_doubles(x), after = to_doubles(quantize_dequantize(x, 8));
  for (std::size_t row = 0; row < 3; ++row) {
    const GroupError small = error_of(before, after, 40 * row, 32, 127.0), large = error_of(before, after, 40 * row + 32, 8, 127.0);
    EXPECT_LE(small.worst, 0.0151) << "3.8/127/2";
    EXPECT_GT(large.worst, 0.5);
  }
}

// What comes back is an FP16 scale times an integer that the bits can hold, down to scales that are subnormal, where the nearest
// FP16 would be off by so much that the largest number had no integer.
TEST(QuantizedCache, WhatComesBackFitsIntoTheBits) {
  for (const auto& [bits, largest] : {std::pair(8, 127.0), std::pair(4, 7.0)})
    for (const double size : {0.0, 1e-9, 3e-6, 5e-6, 7e-6, 1e-3, 1.0, 1e4}) {
      const auto before = to_doubles(normals({1, 1, 8, 32}, 13).to(at::kDouble).mul(size));
      const auto after = to_doubles(quantize_dequantize(normals({1, 1, 8, 32}, 13).to(at::kDouble).mul(size), bits));
      if (size == 0.0) { EXPECT_EQ(before, after); }
      for (std::size_t first = 0; size > 0.0 && first < before.size(); first += 32) {
        const GroupError e = error_of(before, after, first, 32, largest);
        double scale = round_to_half(e.scale);
        while (scale < e.scale) scale = round_to_half(scale + ulp_of_half(scale));
        EXPECT_LE(e.worst, 0.5 * scale) << size;
        double top = 0.0;
        for (std::size_t i = first; i < first + 32; ++i) {
          EXPECT_EQ(after[i] / scale, std::nearbyint(after[i] / scale));
          top = std::max(top, std::fabs(after[i] / scale));
        }
        EXPECT_LE(top, largest) << size;
        if (size >= 1.0) { EXPECT_EQ(top, largest) << "the largest number has the largest integer: " << size; }
      }
    }
}

TEST(QuantizedCache, BytesArePackedIntegersAndScales) {
  ModelConfig config = config_of(toy_dir("toy-llama"));
  const std::int64_t rows = 2 * config.sizes.n_layers * config.sizes.n_kv_heads * 10;
  ASSERT_EQ(config.sizes.head_dim, 8);
  EXPECT_EQ(quantized_cache_bytes(config, 8, 10), static_cast<std::uint64_t>(rows * (8 + 2)));
  EXPECT_EQ(quantized_cache_bytes(config, 4, 10), static_cast<std::uint64_t>(rows * (4 + 2)));
  config.sizes.head_dim = 80;
  EXPECT_EQ(quantized_cache_bytes(config, 4, 10), static_cast<std::uint64_t>(rows * (40 + 6)));
}

// ---- refresh and smoothing ----

struct Refreshed : testing::Test {
  LoadedModel model = load(toy_dir("toy-mistral"), DType::float16);
  Fixture f = toy("toy-mistral", 1);
  EditTap tap = add_in_decode(Site::block, 0, 0.05);
  Arms arms{model.decoder, {&tap, nullptr}};
  std::vector<TokenId> all = f.prompts[0].ids;

  /// ON's cache behind the prompt and four more tokens.
  KvCache walked(CacheRemedy* remedy) {
    const c10::InferenceMode inference;
    KvCache cache(f.config, DType::float16, std::ssize(f.prompts[0].ids) + 8, c10::kCPU);
    std::vector<TokenId> stored = f.prompts[0].ids;
    arms.on(stored, cache);
    if (remedy != nullptr) remedy->after_call(arms, stored, std::ssize(stored), cache);
    for (const TokenId token : {5, 9, 200, 31}) {
      stored.push_back(token);
      arms.on(std::span(stored).last(1), cache);
      if (remedy != nullptr) remedy->after_call(arms, stored, 1, cache);
    }
    all = stored;
    return cache;
  }
  KvCache fresh() {
    KvCache cache(f.config, DType::float16, std::ssize(all), c10::kCPU);
    arms.on(all, cache);
    return cache;
  }
  bool same(const KvCache& a, const KvCache& b) const {
    bool equal = true;
    for (std::int64_t layer = 0; layer < f.config.sizes.n_layers; ++layer)
      equal = equal && a.keys(layer).equal(b.keys(layer)) && a.values(layer).equal(b.values(layer));
    return equal;
  }
};

TEST_F(Refreshed, AfterEveryTokenTheCacheIsThatOfTheWholePrefix) {
  const KvCache without = walked(nullptr);
  EXPECT_FALSE(same(without, fresh())) << "what is planted in decoding: else this shows nothing";
  EXPECT_TRUE(same(walked(refreshed_cache(1, 1.0).get()), fresh()));
  EXPECT_TRUE(same(walked(refreshed_cache(2, 1.0).get()), fresh())) << "the fourth token was refreshed";
  EXPECT_FALSE(same(walked(refreshed_cache(3, 1.0).get()), fresh())) << "the fourth was not";
}

TEST_F(Refreshed, TheEndsOfSmoothingAreNoneAndRefresh) {
  const KvCache without = walked(nullptr);
  EXPECT_TRUE(same(walked(refreshed_cache(2, 0.0).get()), without));
  const KvCache half = walked(refreshed_cache(4, 0.5).get());
  const KvCache other = fresh();
  EXPECT_FALSE(same(half, without));
  for (std::int64_t layer = 0; layer < f.config.sizes.n_layers; ++layer) {
    // The sum of two halves near each other is exact in FP32.
    const at::Tensor middle = without.values(layer).to(at::kFloat).add(other.values(layer).to(at::kFloat)).mul(0.5).to(at::kHalf);
    EXPECT_TRUE(half.values(layer).equal(middle)) << layer;
  }
}

TEST_F(Refreshed, AnFp32CacheStoresTheSameNumbers) {
  EXPECT_TRUE(same(walked(float32_cache(f.config, 64).get()), walked(nullptr)));
}

// ---- the ladder ----

// On a backend with one order for many rows and another for one, whose bits are the same on every CPU.
TEST(Mitigate, TheLadderOfRemedies) {
  Fixture f = toy("toy-llama", 2);
  const ExperimentResult r = mitigate(f, quick("order:prefill=pairwise,decode=sequential"));
  EXPECT_GT(mean_kl_of(r, "none"), 1e-9);
  EXPECT_EQ(row_of(r, "none")["meets_limit"], false);
  ASSERT_EQ(r.conditions[0]["remedies"].size(), 12u);
  for (const char* control : {"prefill_bit_equal", "on_on_bit_equal", "float32_cache_changes_nothing"}) EXPECT_EQ(r.controls[control], true) << control;

  EXPECT_EQ(mean_kl_of(r, "invariant"), 0.0);
  EXPECT_EQ(row_of(r, "invariant")["bit_equal_rate"], 1.0);
  EXPECT_EQ(row_of(r, "invariant")["meets_limit"], true);
  EXPECT_EQ(mean_kl_of(r, "cache-float32"), mean_kl_of(r, "none"));
  EXPECT_EQ(row_of(r, "cache-float32")["on_as_without_rate"], 1.0);
  EXPECT_TRUE(row_of(r, "float32")["on_as_without_rate"].is_null());
  // 8 bits are far coarser than rounding, 4 bits than 8, FP32 finer than FP16.
  EXPECT_GT(mean_kl_of(r, "kv-int8"), 10.0 * mean_kl_of(r, "none"));
  EXPECT_GT(mean_kl_of(r, "kv-int4"), 10.0 * mean_kl_of(r, "kv-int8"));
  EXPECT_LT(mean_kl_of(r, "kv-int8"), 0.1);
  EXPECT_EQ(row_of(r, "kv-int4")["on_as_without_rate"], 1.0 / 6.0) << "step 0 attends to what it computed";
  EXPECT_LT(mean_kl_of(r, "float32"), 1e-9);
  EXPECT_LT(mean_kl_of(r, "float32-arithmetic"), 1e-9);

  // ON = OFF is not all: BF16 is farther from float64 than FP16, and FP32 with weights rounded to 16 bits than FP32.
  const auto to_fp64 = [&](const char* remedy) { return row_of(r, remedy)["kl_to_fp64_nats"]["mean"].get<double>(); };
  EXPECT_GT(to_fp64("none"), 1e-8);
  EXPECT_GT(to_fp64("bfloat16"), 5.0 * to_fp64("none"));
  EXPECT_LT(to_fp64("float32"), 1e-10);
  EXPECT_GT(to_fp64("float32-arithmetic"), 100.0 * to_fp64("float32"));
  EXPECT_EQ(to_fp64("kv-int4"), to_fp64("none")) << "the cache is not in the recomputed arm";
  EXPECT_GT(row_of(r, "kv-int4")["on_kl_to_fp64_nats"]["mean"].get<double>(), 10.0 * to_fp64("none"));
}

TEST(Mitigate, TheWholeTableIsPriced) {
  Fixture f = toy("toy-llama", 1);
  const ExperimentResult r = mitigate(f, quick());
  const auto bytes = [&](const char* remedy, const char* what) { return row_of(r, remedy)[what].get<std::int64_t>(); };
  EXPECT_EQ(bytes("none", "peak_bytes"), static_cast<std::int64_t>(memory_need(f.config, DType::float16, r.conditions[0]["n_positions"].get<std::int64_t>()).total()));
  EXPECT_EQ(bytes("float32", "weights_bytes"), 2 * bytes("none", "weights_bytes"));
  EXPECT_EQ(bytes("float32-arithmetic", "weights_bytes"), bytes("none", "weights_bytes"));
  EXPECT_EQ(bytes("cache-float32", "cache_bytes"), 2 * bytes("none", "cache_bytes"));
  EXPECT_EQ(16 * bytes("kv-int8", "cache_bytes"), 10 * bytes("none", "cache_bytes"));
  EXPECT_EQ(16 * bytes("kv-int4", "cache_bytes"), 6 * bytes("none", "cache_bytes"));
  EXPECT_EQ(bytes("refresh:8", "peak_bytes"), bytes("none", "peak_bytes") + bytes("none", "cache_bytes"));
  bool any_on_front = false;
  for (const Json& row : r.conditions[0]["remedies"]) {
    EXPECT_GT(row["on_tokens_per_s"].get<double>(), 0.0);
    EXPECT_GE(row["peak_bytes"], row["weights_bytes"].get<std::int64_t>() + row["cache_bytes"].get<std::int64_t>());
    any_on_front |= row["on_pareto_front"].get<bool>();
  }
  EXPECT_TRUE(any_on_front);
  EXPECT_EQ(row_of(r, "none")["on_speed_to_none"], 1.0);
}

// A fault in ON's decode steps is no rounding: the arithmetic does not matter, and no remedy meets the limit.
TEST(Mitigate, NoArithmeticRemediesAFault) {
  Fixture f = toy("toy-llama", 2);
  EditTap tap = add_in_decode(Site::block, 0, 0.1);
  f.planted = {&tap, nullptr};
  MitigateParams params = quick();
  params.remedy = {"invariant,float32", "none"};
  const ExperimentResult r = mitigate(f, params);
  ASSERT_EQ(r.conditions[0]["remedies"].size(), 3u);
  EXPECT_EQ(r.conditions[0]["remedies"][0]["remedy"], "none") << "first, wherever it was asked for";
  for (const Json& row : r.conditions[0]["remedies"]) {
    EXPECT_GT(row["kl_on_off_nats"]["mean"].get<double>(), 1e-5) << row["remedy"];
    EXPECT_EQ(row["meets_limit"], false);
  }
  EXPECT_EQ(r.verdict["kind"], "not_remedied");
  params.no_search = false;
  const ExperimentResult searched = mitigate(f, params);
  EXPECT_EQ(searched.controls["all_fixed_meets_limit"], false);
  EXPECT_EQ(searched.verdict["kind"], "invalid");
  EXPECT_TRUE(searched.conditions[0]["search"]["smallest"].is_null());
}

// A backend with two orders differs on every CPU; its one-order remedy does not, and the sentence names the cheapest.
TEST(Mitigate, TwoOrdersAreRemediedByOne) {
  Fixture f = toy("toy-mistral", 2);
  MitigateParams params = quick("order:prefill=blocked:8,decode=sequential@float16");
  params.remedy = {"float32-accumulation,invariant,kv-int8"};
  const ExperimentResult r = mitigate(f, params);
  EXPECT_GT(mean_kl_of(r, "none"), 1e-9);
  EXPECT_EQ(row_of(r, "none")["meets_limit"], false);
  EXPECT_LT(mean_kl_of(r, "float32-accumulation"), mean_kl_of(r, "none")) << "another order still, but in FP32";
  EXPECT_EQ(mean_kl_of(r, "invariant"), 0.0);
  EXPECT_EQ(r.verdict["kind"], "remedied");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("kv-int8 costs"));
}

TEST(Mitigate, RecordsAreTheSameBytesInEveryRun) {
  Fixture a = toy("toy-gemma2", 3), b = toy("toy-gemma2", 3), reversed = toy("toy-gemma2", 3);
  MitigateParams params = quick();
  params.max_steps = 4;
  params.remedy = {"none,smooth:2:0.5,invariant,kv-int4,float32"};
  mitigate(a, params);
  mitigate(b, params);
  EXPECT_EQ(a.sink.text, b.sink.text);
  EXPECT_EQ(a.sink.n_records["mitigate"], 15);
  EXPECT_EQ(a.sink.n_commits, 3);
  std::reverse(reversed.prompts.begin(), reversed.prompts.end());
  mitigate(reversed, params);
  EXPECT_NE(a.sink.text, reversed.sink.text);
  const auto lines = [](const std::string& text) { auto all = split(text, '\n'); std::sort(all.begin(), all.end()); return all; };
  EXPECT_EQ(lines(a.sink.text), lines(reversed.sink.text));
}

TEST(Mitigate, WhatDoesNotFitTogetherIsLoadedApart) {
  const ModelConfig config = config_of(toy_dir("toy-llama"));
  const std::vector<Remedy> remedies = remedies_of(MitigateParams{});
  const auto together = groups_that_fit(remedies, config, DType::float16, 100, ~std::uint64_t{0});
  ASSERT_EQ(together.size(), 1u);
  EXPECT_EQ(together[0].size(), remedies.size());
  const auto apart = groups_that_fit(remedies, config, DType::float16, 100, 0);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_EQ(apart[0].size(), remedies.size() - 3);
  EXPECT_EQ(apart[0][0]->name, "none");
}

// ---- the Pareto front ----

TEST(Pareto, SpeedsWithinTheNoiseAreTheSame) {
  const Price base{1e-6, 100.0, 1000};
  EXPECT_TRUE(dominates({1e-7, 100.0, 1000}, base));
  EXPECT_TRUE(dominates({1e-7, 96.0, 1000}, base)) << "4 % slower is not slower";
  EXPECT_FALSE(dominates({1e-7, 90.0, 1000}, base));
  EXPECT_FALSE(dominates({1e-6, 104.0, 1000}, base)) << "4 % faster is not faster";
  EXPECT_TRUE(dominates({1e-6, 110.0, 1000}, base));
  EXPECT_FALSE(dominates({1e-6, 200.0, 1001}, base));
  EXPECT_FALSE(dominates(base, base));
}

TEST(Pareto, TiesAreAllOnTheFront) {
  const std::vector<Price> prices{{0.0, 50.0, 1000}, {1e-6, 100.0, 1000}, {1e-6, 100.0, 1000}, {1e-6, 100.0, 2000}, {1e-3, 103.0, 500}, {1e-3, 80.0, 500}};
  EXPECT_EQ(pareto_front(prices), (std::vector<bool>{true, true, true, false, true, false}));
}

// ---- names ----

TEST(Remedies, AreNamedWithTheirArguments) {
  EXPECT_EQ(parse_remedy("refresh").name, "refresh:8");
  EXPECT_EQ(parse_remedy("refresh:3").interval, 3);
  EXPECT_EQ(parse_remedy("smooth").weight, 0.5);
  EXPECT_EQ(parse_remedy("smooth:4:0.25").weight, 0.25);
  for (const std::string& name : remedy_names()) EXPECT_EQ(parse_remedy(name).name, name);
  const auto message = [](const std::string& name) -> std::string {
    try {
      parse_remedy(name);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return e.what();
    }
  };
  EXPECT_THAT(message("kv-int3"), HasSubstr("did you mean 'kv-int"));
  EXPECT_THAT(message("refresh:0"), HasSubstr("1 or more"));
  EXPECT_THAT(message("refresh:1x"), HasSubstr("1 or more"));
  EXPECT_THAT(message("smooth:8"), HasSubstr("smooth:8:0.5"));
  EXPECT_THAT(message("smooth:8:1.5"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(message("invariant:2"), HasSubstr("takes 0 arguments"));
}

TEST(Mitigate, RefusesWhatCannotBe) {
  const auto refused = [](const std::function<void(MitigateParams&)>& change) { return is_refused(change); };
  EXPECT_FALSE(refused([](MitigateParams&) {}));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.dtype = {DType::float32}; }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.dtype = {DType::float16, DType::bfloat16}; }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.backend = {"torch", "invariant"}; }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.remedy.clear(); }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.remedy = {"refresh", "refresh:8"}; })) << "the same twice";
  EXPECT_TRUE(refused([](MitigateParams& p) { p.max_steps = 1; }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.max_kl = -1.0; }));
  EXPECT_TRUE(refused([](MitigateParams& p) { p.max_subsets = -1; }));
}

}  // namespace
}  // namespace kvdiv::test
