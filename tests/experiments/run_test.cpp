// `run` as a whole, on real models: records, controls, verdict, and that a second run writes the same bytes.
#include "kvdiv/experiments/run.h"

#include <ATen/ops/mul.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "experiments/run_controls.h"
#include "experiments/verdict.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/io/tokenizer.h"
#include "support/experiment.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

Fixture toy_llama(std::size_t n_prompts) { return toy("toy-llama", n_prompts); }

ExperimentResult run(Fixture& fixture, const RunParams& params) {
  Context context = fixture.context();
  return run_experiment(context, params);
}

RunParams quick() {
  RunParams p;
  p.max_new_tokens = 24;
  p.seeds = 2;
  return p;
}

/// The published ids of the toy: the whole chain of tokenizer, weights, decoder and greedy choice, in both arms.
TEST(Run, ToyLlamaWritesItsPublishedStory) {
  const Json expected = read_json_file(toy_dir("toy-llama") / "expected_greedy_ids.json");
  const auto prompt = expected["prompt"].get<std::vector<TokenId>>();
  for (const DType dtype : {DType::float32, DType::float64}) {
    const LoadedModel model = load(toy_dir("toy-llama"), dtype);
    PairRequest request;
    request.prompt = prompt;
    request.max_new_tokens = 256;
    request.choose = [](std::span<const double> logits, std::int64_t) { return argmax_token(logits); };
    const PairOutcome out = decode_pair(model.decoder, request, [](const StepView&) {});
    EXPECT_EQ(out.tokens_on, expected["token_ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(out.tokens_off, out.tokens_on);
  }
}

TEST(Run, ASecondRunGivesTheSameBytes) {
  RunParams params = quick();
  params.dtype = {DType::float16, DType::bfloat16};
  params.strategy = {Strategy::greedy, Strategy::top_p};
  Fixture a = toy_llama(2), b = toy_llama(2);
  const ExperimentResult first = run(a, params), second = run(b, params);
  EXPECT_EQ(a.sink.text, b.sink.text);
  EXPECT_GT(a.sink.text.size(), 10000u);
  EXPECT_EQ(first.conditions.size(), 4u);
  EXPECT_TRUE(first.complete && second.complete);
  EXPECT_EQ(a.sink.pairs.size(), 2u * (2 + 2 * 2)) << "greedy once a prompt, top-p once a prompt and seed";
  EXPECT_EQ(a.sink.n_commits, 12);
  EXPECT_EQ(a.sink.n_checkpoints, 4);
  std::set<std::string> ids;
  for (const PairRecord& p : a.sink.pairs) ids.insert(p.pair_id);
  EXPECT_EQ(ids.size(), a.sink.pairs.size()) << "pair_id is unique";
}

TEST(Run, SizesByDtypeAreThoseOfRounding) {
  RunParams params = quick();
  params.dtype = {DType::float16, DType::float32, DType::bfloat16, DType::float64};
  params.clock = Clock::forced;
  Fixture f = toy_llama(3);
  const ExperimentResult r = run(f, params);
  const auto kl = [&](std::size_t i) { return r.conditions[i]["same_prefix"]["kl_on_off_nats"]["mean"].get<double>(); };
  // An upper bound each; a lower one where the dtype cannot be row-invariant by luck (FP64 and FP32 sums of 64 terms are
  // reordered by any kernel that blocks them differently; zero is possible, so only the order is asserted).
  EXPECT_LT(kl(0), 1e-3);
  EXPECT_LT(kl(1), 1e-9);
  EXPECT_LT(kl(2), 3e-2);
  EXPECT_LT(kl(3), 1e-20);
  EXPECT_EQ(r.conditions[0]["free_running"], nullptr) << "the free clock was not run";
  for (const StepRecord& s : f.sink.steps) {
    EXPECT_TRUE(s.same_prefix);
    EXPECT_LE(s.kl_on_off_nats, s.max_abs_dlogit * s.max_abs_dlogit / 2.0 * (1 + 1e-12)) << "KL ≤ δ²/2";
  }
}

TEST(Run, ReportsTheContractsKeys) {
  Fixture f = toy_llama(2);
  const ExperimentResult r = run(f, quick());
  for (const char* key : {"on_on_bit_equal", "off_off_bit_equal", "prefill_bit_equal", "order_independent", "alignment_independent"})
    EXPECT_EQ(r.controls.at(key), true) << key;
  for (const char* key : {"n_tokens_computed_on", "n_tokens_computed_off"})
    EXPECT_EQ(r.controls.at(key).at("expected"), r.controls.at(key).at("computed"));
  const Json& c = r.conditions.at(0);
  for (const char* key : {"dtype", "backend", "strategy", "n_pairs", "n_prompts", "n_seeds", "divergence_rate", "divergence_by_prompt",
                          "flip_index", "same_prefix", "free_running", "after_flip", "n_nonfinite_steps", "accuracy", "mcnemar", "timing"})
    EXPECT_TRUE(c.contains(key)) << key;
  for (const char* key : {"on_tokens_per_s", "off_tokens_per_s", "peak_rss_bytes"}) EXPECT_GT(c["timing"][key].get<double>(), 0.0) << key;
  EXPECT_EQ(c["n_seeds"], 1);
  EXPECT_EQ(c["n_pairs"], 2);
  ASSERT_EQ(f.warnings.all().at(0).code, "greedy_seeds_collapsed");
  EXPECT_THAT((std::set<std::string>{"equivalent", "rounding"}), testing::Contains(r.verdict.at("kind").get<std::string>()));
}

/// One uniform per (seed, prompt, step), the same for both arms: in FP64, where logits agree to 1e-14, the texts agree.
TEST(Run, ArmsShareTheirUniforms) {
  RunParams params = quick();
  params.dtype = {DType::float64};
  params.strategy = {Strategy::top_k, Strategy::top_p};
  params.temperature = 1.5;
  params.seeds = 3;
  Fixture f = toy_llama(2);
  run(f, params);
  std::set<std::vector<TokenId>> texts;
  for (const PairRecord& p : f.sink.pairs) {
    EXPECT_EQ(p.tokens_on, p.tokens_off);
    texts.insert(p.tokens_on);
  }
  EXPECT_GE(texts.size(), 11u) << "seeds, prompts and strategies draw different texts";
}

TEST(Run, AnInterruptFinishesThePairInHand) {
  Fixture f = toy_llama(3);
  f.progress.interrupt_after = 2;
  RunParams params = quick();
  params.dtype = {DType::float16, DType::float32};
  const ExperimentResult r = run(f, params);
  set_interrupted(false);
  EXPECT_FALSE(r.complete);
  EXPECT_EQ(f.sink.pairs.size(), 2u);
  EXPECT_EQ(f.sink.n_commits, 2);
  EXPECT_EQ(r.conditions.size(), 1u);
  EXPECT_TRUE(r.verdict.is_null());
}

/// B29: an overflow is an invalid measurement, with arm, step and layer, not a run without flips.
TEST(Run, NonfiniteLogitsMakeItInvalid) {
  Fixture f = toy_llama(1);
  f.loader = [&](DType d, const std::string& attention) {
    LoadedModel model = load(f.dir, d, attention);
    for (const NamedWeight& w : model.decoder.weights())
      if (w.name == "model.layers.2.mlp.down_proj.weight") *w.tensor = at::mul(*w.tensor, 60000.0);
    return model;
  };
  const ExperimentResult r = run(f, quick());
  EXPECT_EQ(r.verdict["kind"], "invalid");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), testing::AllOf(HasSubstr("layer 3 of 5"), HasSubstr("step 0")));
  EXPECT_GE(r.conditions[0]["n_nonfinite_steps"].get<int>(), 1);
}

/// A fault that is no rounding survives in FP64: here the weights differ between the arms' first and later calls.
TEST(Verdict, IsDecidedByNumbers) {
  const VerdictInput fp16{"float16/torch/greedy", DType::float16, 1000, 2, 0.1, 1e-6, 0.02};
  const auto kind = [&](const std::vector<VerdictInput>& c, std::optional<Fp64Check> check, std::vector<std::string> problems = {}) { return decide(c, check, problems).kind; };
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 1e-29, 1e-14}), "rounding");
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 0.0, 0.0}), "rounding");
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 1e-7, 1e-3}), "bug");
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 1.1e-12, 1e-6}), "bug") << "just under six orders";
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 0.9e-12, 1e-8}), "rounding") << "just over";
  EXPECT_EQ(kind({fp16}, Fp64Check{2, 64, 1e-15, 2e-7}), "bug") << "small beside the rounding, but far above FP64's own";
  EXPECT_EQ(kind({fp16}, std::nullopt), "undecided");
  VerdictInput equal = fp16;
  equal.bit_equal_rate = 1.0;
  equal.mean_kl_nats = 0.0;
  EXPECT_EQ(kind({equal}, std::nullopt), "equivalent");
  EXPECT_EQ(kind({equal, fp16}, Fp64Check{2, 64, 1e-29, 1e-14}), "rounding");
  EXPECT_EQ(kind({equal}, std::nullopt, {"control x failed"}), "invalid");
  const VerdictInput fp64{"float64/torch/greedy", DType::float64, 1000, 0, 0.1, 1e-29, 1e-14};
  EXPECT_EQ(kind({fp64}, Fp64Check{2, 64, 1e-29, 1e-14}), "rounding");
  VerdictInput wrong = fp64;
  wrong.mean_kl_nats = 0.1;
  EXPECT_EQ(kind({wrong}, Fp64Check{2, 64, 0.1, 1.0}), "bug");
  EXPECT_THAT(decide(std::vector{fp16}, Fp64Check{2, 64, 1e-29, 1e-14}, {}).sentence, testing::AllOf(HasSubstr("float16"), HasSubstr("1e-06"), HasSubstr("1e-29")));
}

/// Controls can fail: other bits in the repetition, or another prompt, are seen.
TEST(Controls, SeeADifference) {
  Fixture f = toy_llama(2);
  LoadedModel model = load(f.dir, DType::float16);
  const Condition c{DType::float16, "torch", Strategy::greedy};
  const PairFingerprint seen = fingerprint_pair(model.decoder, quick(), c, f.prompts[0], 0);
  const std::vector<ControlPair> pairs{{&f.prompts[0], 0, seen}};
  ControlTally good, bad;
  repeat_pairs(model.decoder, quick(), c, pairs, good);
  check_alignment(model.decoder, quick(), c, pairs[0], good);
  EXPECT_TRUE(good.all_hold());
  repeat_pairs(model.decoder, quick(), c, std::vector<ControlPair>{{&f.prompts[1], 0, seen}}, bad);
  EXPECT_THAT(bad.failed(), testing::ElementsAre("order_independent"));
  bad.n_tokens_on = {10, 11};
  EXPECT_THAT(bad.failed(), testing::Contains("n_tokens_computed_on"));
}

TEST(Params, AreValidated) {
  const auto refused = [](const std::function<void(RunParams&)>& change) {
    RunParams p;
    change(p);
    try {
      validate(p);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
    return false;
  };
  EXPECT_FALSE(refused([](RunParams&) {}));
  EXPECT_TRUE(refused([](RunParams& p) { p.max_new_tokens = 0; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.temperature = -0.1; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.temperature = NAN; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.top_k = 0; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.top_p = 1.01; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.seeds = 0; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.dtype.clear(); }));
  EXPECT_TRUE(refused([](RunParams& p) { p.backend = {"torch", "torch"}; }));
  EXPECT_TRUE(refused([](RunParams& p) { p.attention = "flash"; }));
  EXPECT_FALSE(refused([](RunParams& p) { p.temperature = 0.0; }));
}

}  // namespace
}  // namespace kvdiv::test
