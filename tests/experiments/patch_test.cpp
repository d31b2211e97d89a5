// `patch` against faults planted on purpose, and the proof that the published protocol cannot show a recovery.
#include "kvdiv/experiments/patch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "experiments/patch_plan.h"
#include "experiments/patch_verdict.h"
#include "kvdiv/stats/metrics.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

ExperimentResult patch(Fixture& f, const PatchParams& params) {
  Context context = f.context();
  return run_patch(context, params);
}

PatchParams quick(DType dtype = DType::float16) {
  PatchParams p;
  p.dtype = {dtype};
  p.max_steps = 8;
  p.step = {0, 1, 4};
  return p;
}

/// The records at the patched step that hold these values.
std::vector<Json> select(const Fixture& f, const Json& wanted) {
  std::vector<Json> out;
  for (const Json& r : f.sink.others) {
    bool fits = r["offset"] == 0;
    for (const auto& [key, value] : wanted.items()) fits = fits && r[key] == value;
    if (fits) out.push_back(r);
  }
  return out;
}

TEST(Patch, ControlsHoldOnEveryToy) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 2);
    EditTap tap = add_in_decode(Site::block, 0, 0.01);
    f.planted = {&tap, nullptr};
    const ExperimentResult r = patch(f, quick());
    for (const char* control : {"prefill_bit_equal", "self_patch_bit_equal", "everything_recovers", "cumulative_equals_single", "off_is_stateless"})
      EXPECT_EQ(r.controls[control], true) << name << ' ' << control;
    EXPECT_GT(r.controls["random_patch"]["n"].get<int>(), 0) << name;
    for (const Json& all : select(f, {{"what", "all"}})) {
      EXPECT_EQ(all["bit_equal"], true);
      EXPECT_EQ(all["kl_patched_nats"], 0.0);
    }
    EXPECT_NE(r.verdict["kind"], "invalid");
  }
}

// OFF has no state: one patch at step 0 leaves the KL of the whole text as it was, to the last bit, under either clock.
TEST(Patch, ThePublishedProtocolCannotRecoverAnything) {
  for (const Clock clock : {Clock::forced, Clock::free}) {
    Fixture f = toy("toy-llama", 3);
    EditTap tap = add_in_decode(Site::block, 0, 0.05);
    f.planted = {&tap, nullptr};
    PatchParams params = quick(DType::bfloat16);
    params.clock = clock;
    params.step = {0};
    const ExperimentResult r = patch(f, params);
    const Json& rows = r.conditions[0]["published"];
    ASSERT_EQ(static_cast<std::int64_t>(rows.size()), 2 * f.config.sizes.n_layers);
    for (const Json& row : rows) {
      EXPECT_GT(row["over_all_steps"]["kl_base_nats"].get<double>(), 1e-6);
      EXPECT_EQ(row["over_all_steps"]["kl_base_nats"], row["over_all_steps"]["kl_patched_nats"]) << row;
      EXPECT_EQ(row["over_all_steps"]["pct_of_mean"]["value"], 0.0);
    }
    EXPECT_EQ(r.controls["off_is_stateless"], true);
  }
}

// The last block's output decides the logits: patching it recovers its step whatever the cause is, and no other step.
TEST(Patch, TheLastLayerRecoversItsStepAndNothingElse) {
  Fixture f = toy("toy-llama", 3);
  EditTap tap = add_in_decode(Site::block, 0, 0.05);
  f.planted = {&tap, nullptr};
  PatchParams params = quick(DType::bfloat16);
  params.step = {1};
  const ExperimentResult r = patch(f, params);
  const std::int64_t last = f.config.sizes.n_layers;
  int n = 0;
  for (const Json& row : r.conditions[0]["published"]) {
    if (row["layer"] != last) continue;
    ++n;
    EXPECT_EQ(row["at_the_step"]["kl_patched_nats"], 0.0);
    EXPECT_LT(row["over_all_steps"]["pct_of_mean"]["value"].get<double>(), 60.0);
  }
  EXPECT_EQ(n, 2);
  for (const Json& record : select(f, {{"direction", "on_into_off"}, {"what", "residual"}})) {
    if (record["layers"].back() == last) { EXPECT_EQ(record["bit_equal"], true); }
  }
}

// In OFF a residual patch at layer l overwrites all that the layers before it did to the newest token, so "layers 1…l" is
// the same intervention as "layer l".
TEST(Patch, LayersUpToLAreTheSameInOffAsLayerL) {
  Fixture f = toy("toy-mistral", 2);
  patch(f, quick());
  std::map<std::string, std::set<double>> by_last_layer;
  for (const Json& r : select(f, {{"direction", "on_into_off"}, {"what", "residual"}}))
    by_last_layer[fmt::format("{} {} {}", r["pair_id"].get<std::string>(), r["step"].dump(), r["layers"].back().dump())]
        .insert(r["kl_patched_nats"].get<double>());
  EXPECT_EQ(by_last_layer.size(), 2u * 3u * static_cast<std::size_t>(f.config.sizes.n_layers));
  for (const auto& [where, values] : by_last_layer) EXPECT_EQ(values.size(), 1u) << where;
}

// Only the keys of one layer are wrong: keys recover, values do not touch it. The last layer, so that nothing is inherited.
TEST(Patch, WrongKeysShowInKeysAndNotInValues) {
  Fixture f = toy("toy-llama", 2);
  const std::int64_t last = f.config.sizes.n_layers - 1;
  EditTap tap([last](Site s, std::int64_t l) { return s == Site::key_rotary && l == last; },
              [](Site, std::int64_t, const at::Tensor& x) { return at::mul(x, at::full_like(x, 1.05)); });
  f.planted = {nullptr, &tap};
  PatchParams params = quick(DType::float64);
  params.step = {1, 4};
  const ExperimentResult r = patch(f, params);
  for (const char* direction : {"off_into_on", "on_into_off"}) {
    int n = 0;
    for (const Json& record : select(f, {{"direction", direction}, {"positions", "all"}})) {
      if (record["layers"].size() != static_cast<std::size_t>(last + 1) || !record["heads"].is_null()) continue;
      ASSERT_GT(record["kl_base_nats"].get<double>(), 1e-9);
      const double pct = record["pct_recovered"].get<double>();
      if (record["what"] == "k" || record["what"] == "kv") { EXPECT_NEAR(pct, 100.0, 1e-6) << record; ++n; }
      if (record["what"] == "v") { EXPECT_NEAR(pct, 0.0, 1e-6) << record; ++n; }
    }
    EXPECT_EQ(n, 2 * 2 * 3) << direction;
  }
  // By layer: only the planted one.
  for (const Json& row : r.conditions[0]["by_layer"])
    if (row["direction"] == "off_into_on") {
      EXPECT_NEAR(row["k"]["value"].get<double>(), row["layer"] == last + 1 ? 100.0 : 0.0, 1e-5) << row;
    }
}

// Only one KV head's values are wrong.
TEST(Patch, FindsTheHead) {
  Fixture f = toy("toy-llama", 2);
  const std::int64_t last = f.config.sizes.n_layers - 1, head = 2;
  EditTap tap([last](Site s, std::int64_t l) { return s == Site::value && l == last; },
              [](Site, std::int64_t, const at::Tensor& x) {
                at::Tensor out = x.clone();
                out.select(1, head).mul_(1.05);
                return out;
              });
  f.planted = {nullptr, &tap};
  PatchParams params = quick(DType::float64);
  params.step = {4};
  const ExperimentResult r = patch(f, params);
  ASSERT_EQ(static_cast<std::int64_t>(r.conditions[0]["by_head"].size()), f.config.sizes.n_kv_heads);
  for (const Json& row : r.conditions[0]["by_head"]) {
    const double expected = row["kv_head"] == head ? 100.0 : 0.0;
    EXPECT_NEAR(row["v"]["value"].get<double>(), expected, 1e-5) << row;
    EXPECT_NEAR(row["k"]["value"].get<double>(), 0.0, 1e-5) << row;
  }
}

// The newest token's residual stream is wrong behind block j: patches at j and later undo it, earlier ones do not.
TEST(Patch, ResidualPatchesFromThePlantedLayerOnRecover) {
  Fixture f = toy("toy-mistral", 2);
  for (const std::int64_t planted : {1, 2}) {
    EditTap tap = add_at(Site::block, planted, 0.01);
    f.planted = {nullptr, &tap};
    PatchParams params = quick(DType::float64);
    params.step = {1, 4};
    params.what = {PatchWhat::residual};
    params.direction = {Direction::on_into_off};
    f.sink.others.clear();
    patch(f, params);
    const auto records = select(f, {{"what", "residual"}});
    EXPECT_EQ(static_cast<std::int64_t>(records.size()), 2 * 2 * 2 * f.config.sizes.n_layers);
    for (const Json& r : records) {
      ASSERT_GT(r["kl_base_nats"].get<double>(), 1e-9);
      const bool from_planted = r["layers"].back().get<std::int64_t>() >= planted + 1;
      EXPECT_NEAR(r["pct_recovered"].get<double>(), from_planted ? 100.0 : 0.0, 1e-4) << r;
    }
  }
}

// ON's own past is wrong: a stale cache. Patching the stored positions undoes it, the prompt's alone only its share, and
// the patch stays: nothing comes back on later steps.
TEST(Patch, AStaleCacheIsFoundInStoredPositionsAndThePatchStays) {
  Fixture f = toy("toy-llama", 2);
  EditTap tap([](Site s, std::int64_t l) { return s == Site::value && l == 1; },
              [](Site, std::int64_t, const at::Tensor& x) {
                return x.size(2) > 1 ? at::mul(x, at::full_like(x, 1.02)) : x;  // the prefill's values
              });
  f.planted = {&tap, nullptr};
  PatchParams params = quick(DType::float64);
  params.step = {2};
  patch(f, params);
  const auto whole = [&](const char* what, const char* positions) {
    double pct = NAN;
    for (const Json& r : select(f, {{"direction", "off_into_on"}, {"what", what}, {"positions", positions}}))
      if (r["layers"].size() == static_cast<std::size_t>(f.config.sizes.n_layers) && r["heads"].is_null())
        pct = r["pct_recovered"].get<double>();
    return pct;
  };
  // Layer 1's values fed what layers above computed during the prefill, so K is wrong there too; together all is undone.
  EXPECT_NEAR(whole("kv", "stored"), 100.0, 1e-6);
  EXPECT_NEAR(whole("kv", "prompt"), 100.0, 5.0) << "the generated positions inherited a little";
  EXPECT_LT(whole("kv", "generated"), 50.0);
  for (const Json& r : f.sink.others)
    if (r["what"] == "kv" && r["offset"] > 0) {
      EXPECT_NEAR(r["pct_recovered"].get<double>(), 100.0, 1e-6) << r;
    }
}

// The verdict takes the whole interval: an estimate of 79 % with an interval that holds 0 decides nothing.
TEST(Patch, TheVerdictIsTheIntervalsNotTheEstimates) {
  const auto kind = [](Json share) {
    const Json row = {{"direction", "off_into_on"}, {"what", "kv"}, {"positions", "all"}, {"step", 8}, {"kl_base_nats", 1e-6}, {"pct_of_mean", std::move(share)}};
    const Json condition = {{"dtype", "float16"}, {"backend", "torch"}, {"parts", Json::array({row})}};
    return patch_verdict(Json::array({condition}), {})["kind"].get<std::string>();
  };
  const auto share = [](Json value, Json low, Json high) { return Json{{"value", value}, {"low", low}, {"high", high}}; };
  EXPECT_EQ(kind(share(93, 80, 100)), "kv");
  EXPECT_EQ(kind(share(79, -35, 97)), "undecided");
  EXPECT_EQ(kind(share(10, -5, 30)), "newest_token");
  EXPECT_EQ(kind(share(99, nullptr, nullptr)), "undecided") << "one prompt";
  EXPECT_EQ(kind(share(nullptr, nullptr, nullptr)), "none");
}

TEST(Patch, RandomPatchesHaveTheNormOfTheDifference) {
  const LoadedModel model = load(toy_dir("toy-llama"), DType::float16);
  EditTap tap = add_in_decode(Site::block, 0, 0.01);
  const Arms arms(model.decoder, {&tap, nullptr});
  Fixture f = toy("toy-llama", 1);
  TrajectoryRequest request;
  request.prompt = f.prompts[0].ids;
  request.max_steps = 6;
  const Trajectory t = decode_trajectory(arms, request);
  const StepStates on = states_of_on(arms, t, 5), off = states_of_off(arms, t, 5);
  const StepStates random = random_states(on, off, 1), again = random_states(on, off, 1), other = random_states(on, off, 2);
  double difference = 0.0, changed = 0.0, overlap = 0.0, fourth = 0.0;
  bool same_seed_same_bits = true, other_seed_other_bits = false;
  for (std::size_t i = 0; i < on.keys.size(); ++i)
    for (const auto member : {&StepStates::keys, &StepStates::values}) {
      const auto a = to_doubles((on.*member)[i]), b = to_doubles((off.*member)[i]), r = to_doubles((random.*member)[i]);
      same_seed_same_bits &= (random.*member)[i].equal((again.*member)[i]);
      other_seed_other_bits |= !(random.*member)[i].equal((other.*member)[i]);
      for (std::size_t k = 0; k < a.size(); ++k) {
        difference += (b[k] - a[k]) * (b[k] - a[k]);
        fourth += std::pow(b[k] - a[k], 4);
        changed += (r[k] - a[k]) * (r[k] - a[k]);
        overlap += (b[k] - a[k]) * (r[k] - a[k]);
      }
    }
  ASSERT_GT(difference, 0.0) << "ON and OFF hold the same bits here: nothing to test";
  EXPECT_NEAR(changed / difference, 1.0, 0.2);
  EXPECT_LT(std::abs(overlap), 4.0 * std::sqrt(fourth)) << "four standard deviations of Σ ±d²";
  EXPECT_TRUE(same_seed_same_bits);
  EXPECT_TRUE(other_seed_other_bits);
}

// A copy of the cache used twice gives the same bits, and leaves the original alone.
TEST(Patch, AForkedCacheIsIndependent) {
  const LoadedModel model = load(toy_dir("toy-mistral"), DType::float16);
  const Arms arms(model.decoder);
  Fixture f = toy("toy-mistral", 1);
  TrajectoryRequest request;
  request.prompt = f.prompts[0].ids;
  request.max_steps = 5;
  const Trajectory t = decode_trajectory(arms, request);
  const StepStates off = states_of_off(arms, t, 3);
  const Patch everything_patch = everything(f.config.sizes);
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 2; ++i) {
    KvCache cache = t.cache_before(3);
    EXPECT_EQ(cache.length(), t.n_prompt() + 2);
    runs.push_back(host_logits(patched_on_step(arms, t, 3, everything_patch, off, cache)));
    EXPECT_EQ(cache.length(), t.n_prompt() + 3);
  }
  EXPECT_EQ(runs[0], runs[1]);
  KvCache untouched = t.cache_before(3);
  EXPECT_EQ(host_logits(arms.on(t.newest(3), untouched)), t.logits_on[3]);
}

TEST(Patch, OrderOfPromptsDoesNotMatter) {
  Fixture a = toy("toy-gemma2", 3), b = toy("toy-gemma2", 3);
  std::reverse(b.prompts.begin(), b.prompts.end());
  patch(a, quick());
  patch(b, quick());
  EXPECT_EQ(as_set(a.sink.others), as_set(b.sink.others));
}

TEST(Patch, PositionSetsAreWhatTheySay) {
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(position_range(Positions::all, 10, 3), (Range{0, 13}));
  EXPECT_EQ(position_range(Positions::stored, 10, 3), (Range{0, 12}));
  EXPECT_EQ(position_range(Positions::prompt, 10, 3), (Range{0, 10}));
  EXPECT_EQ(position_range(Positions::generated, 10, 3), (Range{10, 13}));
}

TEST(Patch, RefusesWhatCannotBe) {
  const auto refused = [](const std::function<void(PatchParams&)>& change) { return is_refused(change); };
  EXPECT_FALSE(refused([](PatchParams&) {}));
  EXPECT_TRUE(refused([](PatchParams& p) { p.step = {32}; }));
  EXPECT_TRUE(refused([](PatchParams& p) { p.step = {-1}; }));
  EXPECT_TRUE(refused([](PatchParams& p) { p.what.clear(); }));
  EXPECT_TRUE(refused([](PatchParams& p) { p.layers = std::vector<std::int64_t>{}; }));
  EXPECT_TRUE(refused([](PatchParams& p) { p.clock = Clock::both; }));
  Fixture f = toy("toy-llama", 1);
  PatchParams p = quick();
  p.layers = std::vector<std::int64_t>{6};
  EXPECT_THROW(patch(f, p), Error);
  p.layers.reset();
  p.heads = std::vector<std::int64_t>{4};
  EXPECT_THROW(patch(f, p), Error);
}

}  // namespace
}  // namespace kvdiv::test
