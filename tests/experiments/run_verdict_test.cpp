// The verdict of `run` where something is planted: rounding or bug, where, and what it looks like.
#include "kvdiv/experiments/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "experiments/run_fp64.h"
#include "kvdiv/decode/faults.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

ExperimentResult run(Fixture& fixture, const RunParams& params) {
  Context context = fixture.context();
  return run_experiment(context, params);
}

RunParams quick() {
  RunParams p;
  p.max_new_tokens = 6;
  p.seeds = 1;
  p.clock = Clock::forced;
  p.ignore_eos = true;
  return p;
}

Fixture tiny(const std::string& name, std::vector<std::int64_t> lengths) {
  std::vector<PromptItem> items;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<TokenId> ids{1};
    for (std::int64_t t = 1; t < lengths[i]; ++t) ids.push_back((7 * t * t + static_cast<std::int64_t>(i) + 3) % 96);
    items.push_back({fmt::format("p{}", i), "", static_cast<std::int64_t>(i), ids, std::nullopt});
  }
  return Fixture(golden_dir(name), std::move(items));
}

PlantedFault planted(Fault kind, const std::function<void(FaultSpec&)>& change = [](FaultSpec&) {}) {
  FaultSpec spec;
  spec.fault = kind;
  change(spec);
  return PlantedFault(spec);
}

TEST(RunVerdict, SaysWhereABugIs) {
  Fixture f = tiny("tiny-gemma2", {14, 11});
  const PlantedFault fault = planted(Fault::rotary_off_by_one, [](FaultSpec& s) { s.shift = 2; });
  f.planted = fault.planted();
  RunParams params = quick();
  params.dtype = {DType::float16, DType::float32};
  const ExperimentResult r = run(f, params);
  EXPECT_EQ(r.verdict["kind"], "bug") << r.verdict << r.controls;
  EXPECT_EQ(r.verdict["where"], (Json{{"step", 1}, {"layer", 1}, {"operation", "query_rotary"}, {"arm", "on"}}));
  EXPECT_EQ(r.verdict["nearest"]["symptom"], "rotary_off_by_one");
  EXPECT_LT(r.verdict["nearest"]["distance_nats"].get<double>(), 1e-20);
  EXPECT_GE(r.verdict["nearest"]["compared_to"].size(), 2u);
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(),
              testing::AllOf(HasSubstr("not rounding"), HasSubstr("step 1, layer 1, query_rotary"), HasSubstr("rotary_off_by_one"), HasSubstr("+2")));
  EXPECT_EQ(r.controls["on_on_bit_equal"], true) << "the controls repeat what is planted";
  EXPECT_EQ(r.controls["order_independent"], true);
  EXPECT_EQ(r.controls["alignment_independent"], true);
}

/// Every fault whose arms compute as many tokens as they must and agree at step 0 is a bug with its name.
TEST(RunVerdict, NamesWhatIsPlanted) {
  for (const Fault kind : {Fault::positions_restart, Fault::window_off_by_one, Fault::window_ignored, Fault::layers_swapped,
                           Fault::stale_slot, Fault::kv_heads_mapped_wrongly, Fault::cap_dropped, Fault::cache_lower_dtype,
                           Fault::eps_changed, Fault::noise}) {
    Fixture f = tiny("tiny-gemma2", {14});
    const PlantedFault fault = planted(kind);
    f.planted = fault.planted();
    const ExperimentResult r = run(f, quick());
    EXPECT_EQ(r.verdict["kind"], "bug") << name_of(kind) << r.verdict;
    EXPECT_EQ(r.verdict["nearest"]["symptom"], name_of(kind)) << r.verdict;
  }
}

/// Too many or too few tokens are a control's matter: what was measured is not what was meant.
TEST(RunVerdict, WrongTokenCountsAreInvalid) {
  for (const Fault kind : {Fault::newest_token_only, Fault::prompt_dropped, Fault::doubled_bos}) {
    Fixture f = tiny("tiny-llama", {14});
    const PlantedFault fault = planted(kind);
    f.planted = fault.planted();
    const ExperimentResult r = run(f, quick());
    EXPECT_EQ(r.verdict["kind"], "invalid") << name_of(kind);
    EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("n_tokens_computed"));
    EXPECT_FALSE(r.verdict.contains("where"));
  }
}

TEST(RunVerdict, RoundingHasNoPlace) {
  Fixture f = tiny("tiny-gemma2", {14});
  const PlantedFault fault = planted(Fault::norm_order_changed);
  f.planted = fault.planted();
  const ExperimentResult r = run(f, quick());
  EXPECT_EQ(r.verdict["kind"], "rounding") << "by definition: in float64 it is not there" << r.verdict;
  EXPECT_FALSE(r.verdict.contains("where") || r.verdict.contains("nearest"));
}

/// A fault that only a long prompt reaches, and that prompt is the last: the pairs of the highest KL are decoded again.
TEST(RunVerdict, LooksAtThePairsThatDifferMost) {
  Fixture f = tiny("tiny-llama", {6, 7, 6, 7, 6, 7, 24});
  const PlantedFault fault = planted(Fault::stale_slot, [](FaultSpec& s) { s.slot = 20, s.distance = 9; });
  f.planted = fault.planted();
  const ExperimentResult r = run(f, quick());
  EXPECT_EQ(r.verdict["kind"], "bug") << r.verdict;
  EXPECT_EQ(r.verdict["nearest"]["symptom"], "stale_slot") << r.verdict;
  EXPECT_LE(r.extra["fp64_check"]["n_pairs"].get<int>(), 4);
}

/// What no symptom fits is a bug all the same, with its place.
TEST(RunVerdict, AnUnknownBugHasAPlace) {
  Fixture f = tiny("tiny-llama", {14});
  EditTap tap = add_in_decode(Site::mlp_out, 1, 0.05);
  f.planted = {&tap, nullptr};
  const ExperimentResult r = run(f, quick());
  EXPECT_EQ(r.verdict["kind"], "bug");
  EXPECT_EQ(r.verdict["where"], (Json{{"step", 1}, {"layer", 2}, {"operation", "mlp_out"}, {"arm", ""}}));
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("no known symptom fits"));
}

/// The float64 control covers every strategy and backend that differed, and a backend without float64 gives way to torch.
TEST(Fp64Control, CoversWhatWasRun) {
  Fixture f = tiny("tiny-llama", {14});
  std::set<std::pair<DType, std::string>> loaded;
  Context context = f.context();
  context.load = [&](DType dtype, const std::string& backend, const std::string& attention) {
    if (dtype == DType::float64 && backend == "narrow") fail_usage("backend narrow has no float64");
    loaded.insert({dtype, backend});
    return f.loader(dtype, attention);
  };
  const auto pair = [&](const std::string& backend, Strategy strategy, std::int64_t seed, double kl) {
    return DifferingPair{{DType::float16, backend, strategy}, f.prompts.front().id, seed, kl, 1};
  };
  DifferingPairs pairs;
  for (std::int64_t seed = 0; seed < 6; ++seed) pairs.add(pair("torch", Strategy::top_k, seed, 1e-6 * static_cast<double>(seed)));
  pairs.add(pair("narrow", Strategy::greedy, 0, 1e-9));
  pairs.add(pair("narrow", Strategy::greedy, 0, 2e-9));  // another dtype of the same pair
  const auto sample = pairs.sample();
  ASSERT_EQ(sample.size(), 3u) << "two of one group, the only one of the other";
  EXPECT_EQ(sample[0].seed, 5);
  EXPECT_EQ(sample[1].seed, 4);
  EXPECT_EQ(sample[2].condition.backend, "narrow");
  EXPECT_EQ(sample[2].mean_kl_nats, 2e-9);
  const auto check = check_in_float64(context, quick(), sample);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->n_pairs, 3);
  ASSERT_EQ(check->pairs.size(), 3u);
  EXPECT_EQ(check->pairs[2].pair, "narrow/greedy/" + f.prompts.front().id + "/s0");
  EXPECT_EQ(check->n_steps, 3 * 6);
  EXPECT_LT(check->mean_kl_nats, 1e-20);
  EXPECT_EQ(loaded, (std::set<std::pair<DType, std::string>>{{DType::float64, "torch"}}));
}

TEST(PairTally, KeepsMeanAndWorstStep) {
  PairTally tally;
  StepRecord r;
  r.same_prefix = true, r.bit_equal = true;
  tally.add(r);
  EXPECT_FALSE(tally.take({}, "p", 0)) << "bit-equal so far";
  r.step = 1, r.bit_equal = false, r.kl_on_off_nats = 3.0;
  tally.add(r);
  r.step = 2, r.kl_on_off_nats = 1.0;
  tally.add(r);
  r.step = 3, r.same_prefix = false, r.kl_on_off_nats = 100.0;
  tally.add(r);
  const auto pair = tally.take({}, "p", 4);
  ASSERT_TRUE(pair);
  EXPECT_DOUBLE_EQ(pair->mean_kl_nats, 4.0 / 3.0);
  EXPECT_EQ(pair->worst_step, 1);
  EXPECT_EQ(pair->seed, 4);
}

}  // namespace
}  // namespace kvdiv::test
