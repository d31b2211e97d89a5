// `noise` against what is known beforehand: no noise, the size that was asked for, the theory of rounding, planted
// margins.
#include "kvdiv/experiments/noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/noise_summary.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

/// RMS relative error of rounding to b bits in units of 2⁻ᵇ, if log x is uniform: ulp²/12 · E[1/x²] on [1, 2).
const double kRoundingRms = std::sqrt(3.0 / (8.0 * std::log(2.0)) / 12.0);

NoiseParams quick(std::vector<double> sizes = {0x1p-10, 0.5}) {
  NoiseParams p;
  p.max_steps = 8;
  p.size = std::move(sizes);
  p.mantissa_bits = {10, 2};
  p.noise_seeds = 1;
  return p;
}

ExperimentResult noise(Fixture& f, const NoiseParams& params) {
  Context context = f.context();
  return run_noise(context, params);
}

std::vector<Json> records(const Fixture& f) {
  std::vector<Json> out;
  for (const std::string& line : split(f.sink.text, '\n'))
    if (line.starts_with("noise{")) out.push_back(Json::parse(line.substr(5)));
  return out;
}

/// A toy with one text's clean trajectory.
struct Text {
  explicit Text(const char* model, DType dtype = DType::float32)
      : f(toy(model, 1)), loaded(f.loader(dtype, "eager")), arms(loaded.decoder), t(decode()) {}
  Trajectory decode() const {
    TrajectoryRequest request;
    request.prompt = f.prompts.front().ids;
    request.max_steps = 8;
    request.with_off = false;
    return decode_trajectory(arms, request);
  }
  /// The cache after the walk; logits of the steps are kept in `logits`.
  KvCache walk(CacheNoise noise) {
    logits.clear();
    change = RelativeChange(f.config.sizes.n_layers);
    return walk_with_noise(arms, t, noise, change, [&](std::int64_t step, const std::vector<double>& row) {
      EXPECT_EQ(step, std::ssize(logits) + 1);
      logits.push_back(row);
    });
  }
  Fixture f;
  LoadedModel loaded;
  Arms arms;
  Trajectory t;
  std::vector<std::vector<double>> logits;
  RelativeChange change{0};
};

CacheNoise gaussian(double size, bool keys = true, bool values = true) {
  CacheNoise noise;
  noise.size = size, noise.keys = keys, noise.values = values;
  return noise;
}

TEST(Noise, NoNoiseIsTheCleanBits) {
  for (const char* model : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Text text(model);
    CacheNoise all_bits = gaussian(0.0);
    all_bits.kind = NoiseKind::mantissa, all_bits.mantissa_bits = 23;
    for (const CacheNoise& none :
         {gaussian(0.0, true, false), gaussian(0.0, false, true), gaussian(0.0), all_bits}) {
      const KvCache cache = text.walk(none);
      EXPECT_TRUE(std::equal(text.logits.begin(), text.logits.end(), text.t.logits_on.begin() + 1)) << model;
      EXPECT_EQ(text.logits.size() + 1, text.t.logits_on.size());
      EXPECT_EQ(text.change.by_norm(), 0.0);
      for (std::int64_t layer = 0; layer < text.f.config.sizes.n_layers; ++layer)
        EXPECT_TRUE(cache.keys(layer).equal(text.t.cache.keys(layer)) &&
                    cache.values(layer).equal(text.t.cache.values(layer)));
    }
  }
}

// What is behind the prompt is computed on noise from layer 1 on, so it may differ; what the prompt and layer 0 hold
// may not.
TEST(Noise, KeysAloneLeaveValuesAloneAndTheOtherWayRound) {
  Text text("toy-llama");
  const std::int64_t P = text.t.n_prompt();
  for (const bool on_keys : {true, false}) {
    const KvCache cache = text.walk(gaussian(0.1, on_keys, !on_keys));
    const auto part = [&](const KvCache& c, bool keys, std::int64_t layer) {
      return keys ? c.keys(layer) : c.values(layer);
    };
    EXPECT_TRUE(part(cache, !on_keys, 0).equal(part(text.t.cache, !on_keys, 0)));
    for (std::int64_t layer = 0; layer < text.f.config.sizes.n_layers; ++layer) {
      const auto untouched = part(cache, !on_keys, layer).narrow(2, 0, P);
      EXPECT_TRUE(untouched.equal(part(text.t.cache, !on_keys, layer).narrow(2, 0, P))) << layer;
    }
    const auto noisy = to_doubles(part(cache, on_keys, 0)), clean = to_doubles(part(text.t.cache, on_keys, 0));
    std::int64_t n_changed = 0;
    for (std::size_t i = 0; i < noisy.size(); ++i) n_changed += noisy[i] != clean[i];
    EXPECT_GT(n_changed, 0.99 * static_cast<double>(noisy.size()));  // every position, the generated ones too
    EXPECT_EQ(text.change.by_norm(!on_keys, on_keys), std::nullopt);
  }
}

// Put on once, at the element's own address: twice the size is twice the change, and another prompt's or seed's is
// another.
TEST(Noise, TheSameDrawServesEverySize) {
  Text text("toy-mistral", DType::float64);
  const auto clean = to_doubles(text.t.cache.keys(0));
  const auto once = to_doubles(text.walk(gaussian(0.01)).keys(0));
  const auto twice = to_doubles(text.walk(gaussian(0.02)).keys(0));
  for (std::size_t i = 0; i < clean.size(); ++i)
    EXPECT_NEAR(twice[i] - clean[i], 2.0 * (once[i] - clean[i]), 1e-14 * (1.0 + std::fabs(clean[i])));
  CacheNoise other = gaussian(0.01);
  other.prompt = 1;
  EXPECT_NE(to_doubles(text.walk(other).keys(0)), once);
  other.prompt = 0, other.seed = 1;
  EXPECT_NE(to_doubles(text.walk(other).keys(0)), once);
}

TEST(Noise, TheDrawsAreStandardNormalAndUncorrelated) {
  Text text("toy-mistral", DType::float64);
  const KvCache cache = text.walk(gaussian(0x1p-20));
  std::vector<double> g;
  for (std::int64_t layer = 0; layer < text.f.config.sizes.n_layers; ++layer)
    for (const bool keys : {true, false}) {
      const auto of = [&](const KvCache& c) {
        return to_doubles((keys ? c.keys(layer) : c.values(layer)).narrow(2, 0, text.t.n_prompt()));
      };
      const auto noisy = of(cache), clean = of(text.t.cache);
      for (std::size_t i = 0; i < clean.size(); ++i) g.push_back((noisy[i] / clean[i] - 1.0) * 0x1p20);
    }
  double mean = 0.0, square = 0.0, fourth = 0.0, next = 0.0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    mean += g[i], square += g[i] * g[i], fourth += std::pow(g[i], 4);
    next += g[i] * g[(i + 1) % g.size()];
  }
  const auto n = static_cast<double>(g.size());
  ASSERT_GT(n, 2000);
  EXPECT_NEAR(mean / n, 0.0, 4.0 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1.0, 4.0 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3.0, 4.0 * std::sqrt(96.0 / n));
  EXPECT_NEAR(next / n, 0.0, 4.0 / std::sqrt(n));
}

TEST(Noise, WhatIsStoredHasTheSizeThatWasAskedFor) {
  Fixture f = toy("toy-mistral", 2);
  noise(f, quick());
  ASSERT_EQ(records(f).size(), 2u * 3u * (2u + 2u));
  for (const Json& r : records(f)) {
    const double stored = r["stored_size"], rms = r["stored_rms"];
    if (r["kind"] == "gaussian") {
      EXPECT_NEAR(stored / r["size"].get<double>(), 1.0, 0.05) << r;
      EXPECT_NEAR(rms / r["size"].get<double>(), 1.0, 0.05) << r;
      EXPECT_EQ(r["noise_seed"], 0);
    } else {
      const double unit = std::ldexp(kRoundingRms, -r["mantissa_bits"].get<int>());
      EXPECT_NEAR(stored / unit, 1.0, 0.1) << r;
      EXPECT_NEAR(rms / unit, 1.0, 0.1) << r;
      EXPECT_TRUE(r["noise_seed"].is_null());
    }
  }
}

TEST(Noise, TheFlipRateRisesFromNothingAndItsThresholdsAreBracketed) {
  Fixture f = toy("toy-llama", 3);
  NoiseParams params = quick({0x1p-20, 0.5, 4.0});
  params.kind = {NoiseKind::gaussian};
  params.what = {NoiseWhat::kv};
  const ExperimentResult r = noise(f, params);
  const Json& curve = r.conditions[0]["curve"];
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_EQ(curve[0]["flips"], 0);
  EXPECT_EQ(curve[0]["text_flip_rate"]["value"], 0.0);
  EXPECT_GT(curve[2]["flip_rate"]["value"].get<double>(), 0.3);
  EXPECT_GT(curve[2]["kl_mean_nats"]["value"].get<double>(), 1e3 * curve[0]["kl_mean_nats"]["value"].get<double>());
  const Json& thresholds = r.conditions[0]["thresholds"];
  ASSERT_EQ(thresholds.size(), 6u);
  int n_crossed = 0;
  for (const Json& row : thresholds) {
    const char* rate = row["per"] == "step" ? "flip_rate" : "text_flip_rate";
    if (row["size"]["value"].is_null()) continue;
    ++n_crossed;
    for (const Json& point : curve) {  // rates rise here
      const bool is_below = point[rate]["value"].get<double>() < row["level"].get<double>();
      EXPECT_EQ(is_below, point["relative_size_stored"].get<double>() < row["size"]["value"].get<double>()) << row;
    }
    EXPECT_NEAR(row["in_fp16_stored"]["value"].get<double>() * kRoundingRms * 0x1p-10,
                row["size"]["value"].get<double>(), 0.1 * row["size"]["value"].get<double>());
  }
  EXPECT_GE(n_crossed, 5);
  EXPECT_EQ(r.verdict["kind"], "measured");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("1 % of steps flip at a relative size of"));
}

TEST(Noise, OrderOfPromptsDoesNotMatter) {
  Fixture f = toy("toy-mistral", 3), again = toy("toy-mistral", 3), reversed = toy("toy-mistral", 3);
  std::reverse(reversed.prompts.begin(), reversed.prompts.end());
  const ExperimentResult a = noise(f, quick()), b = noise(again, quick()), c = noise(reversed, quick());
  EXPECT_EQ(f.sink.text, again.sink.text);
  EXPECT_EQ(a.conditions.dump(), b.conditions.dump());
  EXPECT_EQ(a.conditions.dump(), c.conditions.dump());
  auto sorted = [](const Fixture& x) {
    auto lines = split(x.sink.text, '\n');
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  EXPECT_NE(f.sink.text, reversed.sink.text);
  EXPECT_EQ(sorted(f), sorted(reversed));
  EXPECT_EQ(f.sink.n_commits, 3);
}

TEST(Noise, OtherSizesDoNotChangeARecord) {
  Fixture f = toy("toy-llama", 1), alone = toy("toy-llama", 1);
  noise(f, quick({0.5, 0x1p-10}));
  NoiseParams params = quick({0.5});
  params.kind = {NoiseKind::gaussian};
  params.what = {NoiseWhat::v};
  noise(alone, params);
  ASSERT_EQ(records(alone).size(), 1u);
  EXPECT_THAT(records(f), testing::Contains(records(alone).front()));
}

// One token is ahead by more than any noise: the logits move, and nothing flips.
TEST(Noise, AMarginThatNoNoiseReachesFlipsNowhere) {
  Fixture f = toy("toy-llama", 2);
  EditTap tap([](Site s, std::int64_t) { return s == Site::logits; },
              [](Site, std::int64_t, const at::Tensor& x) {
                at::Tensor out = at::clone(x);
                const at::Tensor one = out.narrow(-1, 42, 1);
                one.copy_(at::add(one, at::full_like(one, 1e3)));
                return out;
              });
  f.planted = {&tap, nullptr};
  const ExperimentResult r = noise(f, quick({0x1p-10, 0.5, 4.0}));
  for (const Json& row : r.conditions[0]["curve"]) {
    EXPECT_EQ(row["flips"], 0);
    EXPECT_EQ(row["tie_flips"], 0);
    EXPECT_GT(row["max_abs_dlogit"].get<double>(), 0.0);
  }
  for (const Json& row : r.conditions[0]["thresholds"]) {
    EXPECT_TRUE(row["size"]["value"].is_null());
    EXPECT_TRUE(row["in_fp16_computed"]["value"].is_null());
    EXPECT_EQ(row["size"]["reason"], "the rate is 0 at most");
  }
  for (const Json& record : records(f)) EXPECT_TRUE(record["first_flip"].is_null());
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("no size"));
}

TEST(Noise, Fp16sOwnErrorIsTheTheorysAndSmallerStoredThanComputed) {
  Fixture f = toy("toy-llama", 2);
  const ExperimentResult r = noise(f, quick());
  const Json& rows = r.conditions[0]["fp16_own_size"];
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t what = 0; what < 3; ++what) {
    const Json &stored = rows[what], &computed = rows[3 + what];
    EXPECT_NEAR(stored["relative_size"]["value"].get<double>() / (kRoundingRms * 0x1p-10), 1.0, 0.1) << stored;
    EXPECT_GT(computed["relative_size"]["value"].get<double>(), stored["relative_size"]["value"].get<double>());
    EXPECT_LT(computed["relative_size"]["value"].get<double>(), 0x1p-7);
    EXPECT_EQ(computed["what"], stored["what"]);
    EXPECT_FALSE(stored["flip_rate"].is_null());  // of the curve's row of 10 bits
  }
  EXPECT_TRUE(rows[3]["flip_rate"].is_null());
  EXPECT_FALSE(rows[5]["flip_rate"].is_null());
}

TEST(Noise, WhatTheDtypeCannotHoldIsRoundedAwayAndSaid) {
  Fixture f = toy("toy-llama", 1), fine = toy("toy-llama", 1);
  NoiseParams params = quick({0x1p-14, 0.5});
  params.dtype = {DType::float16};
  params.mantissa_bits = {10};
  const ExperimentResult r = noise(f, params);
  EXPECT_THAT(r.conditions[0]["note"].get<std::string>(), HasSubstr("float16"));
  for (const Json& row : r.conditions[0]["curve"]) {
    if (row["kind"] == "mantissa") {
      EXPECT_EQ(row["relative_size_stored"], 0.0);
      EXPECT_EQ(row["max_abs_dlogit"], 0.0);
    } else if (row["size"] == 0x1p-14) {
      EXPECT_GT(std::fabs(row["relative_size_stored"].get<double>() / 0x1p-14 - 1.0), 0.1) << row;
    }
  }
  for (const Json& row : r.conditions[0]["thresholds"])
    if (row["kind"] == "mantissa") {
      EXPECT_EQ(row["size"]["reason"], "no noise changed anything that is stored");
    }
  for (int what = 0; what < 3; ++what)  // of a cache that is in FP16 anyway
    EXPECT_TRUE(r.conditions[0]["fp16_own_size"][what]["flip_rate"].is_null());
  EXPECT_GT(r.conditions[0]["fp16_own_size"][5]["relative_size"]["value"].get<double>(), 0.0);
  EXPECT_TRUE(noise(fine, quick()).conditions[0]["note"].is_null());
}

TEST(Noise, AFailedControlMakesItInvalid) {
  Fixture f = toy("toy-llama", 1);
  double size = 0.0;  // another fault at every call: nothing repeats
  EditTap tap([](Site s, std::int64_t layer) { return s == Site::block && layer == 0; },
              [&size](Site, std::int64_t, const at::Tensor& x) {
                size += 1e-3;
                return at::add(x, at::full_like(x, size));
              });
  f.planted = {&tap, nullptr};
  const ExperimentResult r = noise(f, quick());
  EXPECT_EQ(r.controls["zero_noise_bit_equal"], false);
  EXPECT_EQ(r.controls["repeat_bit_equal"], false);
  EXPECT_EQ(r.verdict["kind"], "invalid");
}

TEST(Noise, AnInterruptIsSeenBetweenTexts) {
  Fixture f = toy("toy-llama", 2);
  f.progress.interrupt_after = 3;
  const ExperimentResult r = noise(f, quick());
  set_interrupted(false);
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(r.conditions.empty());
  EXPECT_EQ(f.sink.n_records["noise"], 3);
  EXPECT_EQ(f.sink.n_commits, 0);
}

TEST(Noise, ACrossingIsInterpolatedOnTheLogarithmOfTheSize) {
  const std::vector<CurvePoint> curve{{0.01, 0.0}, {0.1, 0.2}, {1.0, 0.2}, {10.0, 0.6}};
  EXPECT_NEAR(*crossing(curve, 0.1).size, std::pow(10.0, -1.5), 1e-15);
  EXPECT_NEAR(*crossing(curve, 0.2).size, 0.1, 1e-15);
  EXPECT_NEAR(*crossing(curve, 0.5).size, std::pow(10.0, 0.75), 1e-14);
  EXPECT_NEAR(*crossing(curve, 0.6).size, 10.0, 1e-14);
  const Crossing never = crossing(curve, 0.7);
  EXPECT_FALSE(never.size);
  EXPECT_EQ(never.reason, "the rate is 0.6 at most");
  const Crossing before = crossing(std::span(curve).subspan(1), 0.1);
  EXPECT_FALSE(before.size);
  EXPECT_EQ(before.reason, "the rate is 0.2 at the smallest size already");
  EXPECT_FALSE(crossing({}, 0.1).size);
  // A dip is passed over: the largest rate so far stands for it.
  const std::vector<CurvePoint> dip{{1.0, 0.0}, {10.0, 0.4}, {100.0, 0.1}, {1000.0, 0.8}};
  EXPECT_NEAR(*crossing(dip, 0.6).size, std::pow(10.0, 2.5), 1e-11);
}

TEST(Noise, ParametersAreValidated) {
  const auto message = [](const std::function<void(NoiseParams&)>& change) -> std::string {
    NoiseParams params;
    change(params);
    try {
      validate(params);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](NoiseParams&) {}), "");
  EXPECT_EQ(message([](NoiseParams& p) { p.size = {0.0}; }), "");
  EXPECT_EQ(NoiseParams{}.dtype, std::vector<DType>{DType::float32});
  EXPECT_THAT(message([](NoiseParams& p) { p.size = {-0.1}; }), HasSubstr("--size: -0.1"));
  EXPECT_THAT(message([](NoiseParams& p) { p.size = {std::numeric_limits<double>::infinity()}; }),
              HasSubstr("--size: inf"));
  EXPECT_THAT(message([](NoiseParams& p) { p.size = {}; }), HasSubstr("--size: the list is empty"));
  EXPECT_THAT(message([](NoiseParams& p) { p.size = {0.5, 0.5}; }), HasSubstr("--size: a value is given twice"));
  EXPECT_THAT(message([](NoiseParams& p) { p.what = {}; }), HasSubstr("--what: the list is empty"));
  EXPECT_THAT(message([](NoiseParams& p) { p.kind = {}; }), HasSubstr("--kind: the list is empty"));
  EXPECT_THAT(message([](NoiseParams& p) { p.mantissa_bits = {0}; }), HasSubstr("--mantissa-bits: 0"));
  EXPECT_THAT(message([](NoiseParams& p) { p.mantissa_bits = {24}; }), HasSubstr("not one of 1…23"));
  const auto in_float64 = [](std::int64_t bits) {
    return [bits](NoiseParams& p) { p.dtype = {DType::float64}, p.mantissa_bits = {bits}; };
  };
  EXPECT_EQ(message(in_float64(52)), "");
  EXPECT_THAT(message(in_float64(53)), HasSubstr("not one of 1…52"));
  EXPECT_THAT(message([](NoiseParams& p) { p.noise_seeds = 0; }), HasSubstr("--noise-seeds: 0 is less than 1"));
  EXPECT_THAT(message([](NoiseParams& p) { p.max_steps = 1; }), HasSubstr("--max-steps"));
}

}  // namespace
}  // namespace kvdiv::test
