#include "kvdiv/stats/condition_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

using Records = std::vector<std::variant<StepRecord, PairRecord>>;

StepRecord step(std::string pair_id, Clock clock, std::int64_t index, TokenId on, TokenId off, double kl) {
  StepRecord r;
  r.pair_id = std::move(pair_id);
  r.clock = clock;
  r.step = index;
  r.same_prefix = clock != Clock::free;
  r.token_on = on;
  r.token_off = off;
  r.kl_on_off_nats = kl;
  r.kl_off_on_nats = 2 * kl;
  r.js_nats = kl / 4;
  r.max_abs_dlogit = 10 * kl;
  r.bit_equal = kl == 0.0;
  r.margin_on = 3.0;
  r.margin_off = 99.0;
  return r;
}

PairRecord pair(std::string prompt, std::int64_t seed, std::optional<std::int64_t> flip) {
  PairRecord r;
  r.prompt_id = std::move(prompt);
  r.seed = seed;
  r.pair_id = r.prompt_id + std::to_string(seed);
  r.flip_index = flip;
  r.diverged = flip.has_value();
  return r;
}

PairRecord scored(PairRecord r, bool on, bool off) {
  r.gold = "18";
  r.correct_on = on;
  r.correct_off = off;
  return r;
}

ConditionAccumulator accumulate(const Records& records, Clock clocks = Clock::both) {
  ConditionAccumulator a("float16", "torch", "greedy", clocks);
  for (const auto& record : records) std::visit([&](const auto& r) { a.add(r); }, record);
  return a;
}

/// Two prompts, two seeds: A0 flips at 1 and goes on in both clocks, A1 flips by a tie, B0 does not, B1 flips at 1.
Records example() {
  StepRecord tied = step("A1", Clock::both, 0, 5, 6, 0.3), overflow = step("A0", Clock::free, 3, 7, 7, 0.0);
  tied.tie_off = true;
  overflow.kl_on_off_nats = std::numeric_limits<double>::infinity();
  overflow.n_nonfinite = 1;
  overflow.bit_equal = false;
  return {step("A0", Clock::both, 0, 4, 4, 0.0),
          step("A0", Clock::both, 1, 5, 6, 0.2),
          step("A0", Clock::forced, 2, 8, 8, 0.4),
          step("A0", Clock::free, 2, 8, 9, 10.0),
          overflow,
          scored(pair("A", 0, 1), true, false),
          tied,
          scored(pair("A", 1, 0), true, true),
          step("B0", Clock::both, 0, 4, 4, 0.0),
          scored(pair("B", 0, std::nullopt), false, false),
          step("B1", Clock::both, 0, 4, 4, 0.1),
          step("B1", Clock::both, 1, 5, 6, 0.5),
          pair("B", 1, 1)};
}

TEST(ConditionSummary, CountsPairsPromptsAndSeeds) {
  const ConditionSummary s = accumulate(example()).finish();
  EXPECT_EQ(s.dtype, "float16");
  EXPECT_EQ(s.backend, "torch");
  EXPECT_EQ(s.strategy, "greedy");
  EXPECT_EQ(s.n_pairs, 4);
  EXPECT_EQ(s.n_prompts, 2);
  EXPECT_EQ(s.n_seeds, 2);
  EXPECT_EQ(s.n_nonfinite_steps, 1);
  EXPECT_EQ(s.divergence_rate, 0.75);
  EXPECT_EQ(s.divergence_by_prompt.always, 1);
  EXPECT_EQ(s.divergence_by_prompt.sometimes, 1);
  EXPECT_EQ(s.divergence_by_prompt.never, 0);
  EXPECT_EQ(s.flip_index.n, 3);
  EXPECT_DOUBLE_EQ(*s.flip_index.mean, 2.0 / 3.0);
  EXPECT_EQ(s.flip_index.median, 1.0);
}

TEST(ConditionSummary, SamePrefixHoldsBothAndForcedSteps) {
  const StepGroup g = accumulate(example()).finish().same_prefix;
  EXPECT_EQ(g.n_steps, 7);
  EXPECT_EQ(g.flips, 2);
  EXPECT_EQ(g.tie_flips, 1);
  EXPECT_DOUBLE_EQ(*g.flip_rate, 2.0 / 7.0);
  EXPECT_DOUBLE_EQ(*g.bit_equal_rate, 2.0 / 7.0);
  EXPECT_EQ(g.kl_on_off_nats.n, 7);
  EXPECT_NEAR(*g.kl_on_off_nats.mean, 1.5 / 7, 1e-15);
  EXPECT_EQ(g.kl_on_off_nats.max, 0.5);
  EXPECT_NEAR(*g.kl_off_on_nats.mean, 3.0 / 7, 1e-15);
  EXPECT_NEAR(*g.js_nats.mean, 0.375 / 7, 1e-15);
  EXPECT_NEAR(*g.max_abs_dlogit.mean, 15.0 / 7, 1e-15);
  EXPECT_EQ(g.margin.mean, 3.0);  // ON's
}

TEST(ConditionSummary, FreeRunningHoldsBothAndFreeSteps) {
  const ConditionSummary s = accumulate(example()).finish();
  EXPECT_EQ(s.free_running.n_steps, 8);
  EXPECT_EQ(s.free_running.flips, 3);
  EXPECT_EQ(s.free_running.tie_flips, 1);
  EXPECT_EQ(s.free_running.flip_rate, 3.0 / 8.0);
  EXPECT_EQ(s.free_running.kl_on_off_nats.n, 7);
  EXPECT_EQ(s.free_running.kl_on_off_nats.n_nonfinite, 1);
  EXPECT_NEAR(*s.free_running.kl_on_off_nats.mean, 11.1 / 7, 1e-15);
  EXPECT_EQ(s.free_running.kl_off_on_nats.n, 8);
  EXPECT_EQ(s.after_flip.n_steps, 2);
  EXPECT_EQ(s.after_flip.flips, 1);
  EXPECT_EQ(s.after_flip.kl_on_off_nats.n, 1);
  EXPECT_EQ(s.after_flip.kl_on_off_nats.n_nonfinite, 1);
  EXPECT_EQ(s.after_flip.kl_on_off_nats.mean, 10.0);
  EXPECT_EQ(s.after_flip.bit_equal_rate, 0.0);
}

TEST(ConditionSummary, AccuracyIsOfScoredPairsWithAnIntervalByPrompt) {
  const ConditionSummary s = accumulate(example()).finish();
  EXPECT_EQ(s.accuracy.n, 3);
  EXPECT_DOUBLE_EQ(*s.accuracy.on, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(*s.accuracy.off, 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(*s.accuracy.diff, 1.0 / 3.0);
  ASSERT_TRUE(s.accuracy.ci);
  EXPECT_EQ(*s.accuracy.ci, (std::vector<double>{0.0, 0.5}));  // A alone: 1 of 2; B alone: 0 of 1
  ASSERT_TRUE(s.mcnemar);
  EXPECT_EQ(s.mcnemar->b, 1);
  EXPECT_EQ(s.mcnemar->c, 0);
  EXPECT_EQ(s.mcnemar->exact.n, 3);
  EXPECT_DOUBLE_EQ(*s.mcnemar->exact.effect, *s.accuracy.diff);
}

TEST(ConditionSummary, IntervalsResamplePromptsNotSteps) {
  const ConditionSummary s = accumulate(example()).finish();
  // Prompt A: 0, .2, .4, .3 (mean .225), prompt B: 0, .1, .5 (mean .2).
  EXPECT_NEAR(*s.same_prefix.kl_on_off_nats.ci_low, 0.2, 1e-15);
  EXPECT_NEAR(*s.same_prefix.kl_on_off_nats.ci_high, 0.225, 1e-15);
  EXPECT_EQ(s.after_flip.kl_on_off_nats.ci_method, "none: one prompt");
}

TEST(ConditionSummary, KeysAreThoseOfTheDesign) {
  const Json j = to_json_value(accumulate(example()).finish());
  std::vector<std::string> keys, group_keys, accuracy_keys;
  for (const auto& [key, value] : j.items()) keys.push_back(key);
  for (const auto& [key, value] : j["same_prefix"].items()) group_keys.push_back(key);
  for (const auto& [key, value] : j["accuracy"].items()) accuracy_keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"dtype", "backend", "strategy", "n_pairs", "n_prompts", "n_seeds",
                                            "divergence_rate", "divergence_by_prompt", "flip_index", "same_prefix",
                                            "free_running", "after_flip", "n_nonfinite_steps", "accuracy", "accuracy_equivalence", "mcnemar"}));
  EXPECT_EQ(group_keys,
            (std::vector<std::string>{"n_steps", "flips", "tie_flips", "flip_rate", "bit_equal_rate", "kl_on_off_nats",
                                      "kl_off_on_nats", "js_nats", "max_abs_dlogit", "margin"}));
  EXPECT_EQ(accuracy_keys, (std::vector<std::string>{"on", "off", "diff", "ci", "n"}));
  EXPECT_EQ(j["divergence_by_prompt"].dump(), R"({"always":1,"sometimes":1,"never":0})");
  EXPECT_EQ(j["accuracy"]["ci"].dump(), "[0.0,0.5]");
  ConditionSummary read;
  from_json_value(j, read, "condition");
  EXPECT_EQ(to_json_value(read).dump(), j.dump());
}

TEST(ConditionSummary, NothingIsNullNotZero) {
  const ConditionSummary s = accumulate({}).finish();
  EXPECT_EQ(s.n_pairs, 0);
  EXPECT_FALSE(s.divergence_rate);
  EXPECT_EQ(s.same_prefix.n_steps, 0);
  EXPECT_FALSE(s.same_prefix.flip_rate);
  EXPECT_FALSE(s.same_prefix.bit_equal_rate);
  EXPECT_FALSE(s.same_prefix.kl_on_off_nats.mean);
  EXPECT_EQ(s.accuracy.n, 0);
  EXPECT_FALSE(s.accuracy.on);
  EXPECT_FALSE(s.accuracy.ci);
  EXPECT_FALSE(s.mcnemar);
}

TEST(ConditionSummary, WithoutGoldThereIsNoAccuracy) {
  const Records records{step("A0", Clock::both, 0, 1, 1, 0.0), pair("A", 0, std::nullopt)};
  const Json j = to_json_value(accumulate(records).finish());
  EXPECT_EQ(j["accuracy"].dump(), R"({"on":null,"off":null,"diff":null,"ci":null,"n":0})");
  EXPECT_TRUE(j["mcnemar"].is_null());
  EXPECT_EQ(j["divergence_rate"], 0.0);
  EXPECT_EQ(j["divergence_by_prompt"]["never"], 1);
}

TEST(ConditionSummary, ForcedClockAloneHasNoFreeRunningSteps) {
  for (const Clock before_flip : {Clock::both, Clock::forced}) {
    const Records records{step("A0", before_flip, 0, 1, 2, 0.5), step("A0", Clock::forced, 1, 3, 3, 0.1),
                          pair("A", 0, 0)};
    const ConditionSummary s = accumulate(records, Clock::forced).finish();
    EXPECT_EQ(s.same_prefix.n_steps, 2);
    EXPECT_EQ(s.free_running.n_steps, 0);
    EXPECT_FALSE(s.free_running.kl_on_off_nats.mean);
    EXPECT_EQ(s.after_flip.n_steps, 0);
  }
}

TEST(ConditionSummary, FreeClockAloneHasSamePrefixStepsUpToTheFlip) {
  const Records records{step("A0", Clock::both, 0, 1, 1, 0.0), step("A0", Clock::both, 1, 1, 2, 0.5),
                        step("A0", Clock::free, 2, 3, 4, 9.0), pair("A", 0, 1)};
  const ConditionSummary s = accumulate(records, Clock::free).finish();
  EXPECT_EQ(s.same_prefix.n_steps, 2);
  EXPECT_EQ(s.free_running.n_steps, 3);
  EXPECT_EQ(s.after_flip.n_steps, 1);
}

TEST(ConditionSummary, MaskedTokensDoNotHideAStep) {
  StepRecord masked = step("A0", Clock::both, 0, 1, 1, 0.25);
  masked.n_nonfinite = 2;  // −inf in both arms: the divergence is finite
  const ConditionSummary s = accumulate({masked, pair("A", 0, std::nullopt)}).finish();
  EXPECT_EQ(s.n_nonfinite_steps, 1);
  EXPECT_EQ(s.same_prefix.kl_on_off_nats.mean, 0.25);
  EXPECT_EQ(s.same_prefix.kl_on_off_nats.n_nonfinite, 0);
}

TEST(ConditionSummary, RecordsOutOfOrderAreRefused) {
  const StepRecord a = step("A0", Clock::both, 0, 1, 1, 0.0), b = step("B0", Clock::both, 0, 1, 1, 0.0);
  EXPECT_THROW(accumulate({a, b}), Error);
  EXPECT_THROW(accumulate({a, pair("B", 0, std::nullopt)}), Error);
  EXPECT_THROW(accumulate({a}).finish(), Error);
}

Records random_records(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> kl(-10.0, 2.0);
  Records records;
  for (int prompt = 0; prompt < 12; ++prompt)
    for (int s = 0; s < 3; ++s) {
      const std::string name = "p" + std::to_string(prompt);
      const std::int64_t flip = static_cast<std::int64_t>(random() % 8);
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::string id = name + std::to_string(s);
        records.push_back(step(id, i <= flip ? Clock::both : Clock::forced, i, 1, i == flip ? 2 : 1, kl(random)));
        if (i > flip) records.push_back(step(id, Clock::free, i, 1, 2, 1e4 * kl(random)));
      }
      records.push_back(scored(pair(name, s, flip), random() % 2 == 0, random() % 2 == 0));
    }
  return records;
}

TEST(ConditionSummary, SameRecordsGiveTheSameJson) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Records records = random_records(seed);
    const ConditionAccumulator a = accumulate(records);
    const std::string text = to_json_value(a.finish()).dump();
    EXPECT_EQ(text, to_json_value(accumulate(records).finish()).dump());
    EXPECT_EQ(text, to_json_value(a.finish()).dump());  // finish changes nothing
  }
}

TEST(ConditionSummary, GroupsPartitionTheSteps) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Records records = random_records(seed);
    std::int64_t both = 0, forced = 0, free = 0;
    for (const auto& record : records)
      if (const auto* r = std::get_if<StepRecord>(&record))
        ++(r->clock == Clock::both ? both : r->clock == Clock::forced ? forced : free);
    const ConditionSummary s = accumulate(records).finish();
    EXPECT_EQ(s.same_prefix.n_steps, both + forced);
    EXPECT_EQ(s.free_running.n_steps, both + free);
    EXPECT_EQ(s.after_flip.n_steps, free);
    EXPECT_EQ(s.same_prefix.flips, s.n_pairs);  // each pair flips once on the same prefix, by construction
    EXPECT_LT(*s.same_prefix.kl_on_off_nats.ci_low, *s.same_prefix.kl_on_off_nats.mean);
    EXPECT_GT(*s.same_prefix.kl_on_off_nats.ci_high, *s.same_prefix.kl_on_off_nats.mean);
  }
}

TEST(ConditionSummary, AReportOnTheWayMayLeaveIntervalsOut) {
  StatOptions quick;
  quick.n_resamples = 0;
  ConditionAccumulator a = accumulate(example());
  const ConditionSummary early = a.finish(quick);
  EXPECT_FALSE(early.same_prefix.kl_on_off_nats.ci_low);
  EXPECT_FALSE(early.accuracy.ci);
  EXPECT_TRUE(early.same_prefix.kl_on_off_nats.mean);
  a.add(step("C0", Clock::both, 0, 1, 1, 0.0));
  a.add(pair("C", 0, std::nullopt));
  EXPECT_EQ(a.finish().n_pairs, 5);
}

}  // namespace
}  // namespace kvdiv
