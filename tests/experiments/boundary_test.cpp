// `boundary`: margins against a perturbation of known size, and statistics that count prompts.
#include "kvdiv/experiments/boundary.h"

#include <ATen/ops/topk.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvdiv/experiments/run.h"
#include "kvdiv/stats/correlation.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

/// OFF's largest logit falls by `size`, its second rises by it: the most that a change of at most `size` can do.
EditTap squeeze_top_two(double size) {
  return EditTap([](Site s, std::int64_t) { return s == Site::logits; },
                 [size](Site, std::int64_t, const at::Tensor& x) {
                   at::Tensor out = x.clone();
                   const at::Tensor order = std::get<1>(at::topk(x.reshape({-1}), 2));
                   auto flat = out.view({-1});
                   flat.select(0, order[0].item<std::int64_t>()).sub_(size);
                   flat.select(0, order[1].item<std::int64_t>()).add_(size);
                   return out;
                 });
}

TEST(Boundary, PredictedFlipsAreTheObservedOnes) {
  for (const double size : {0.05, 0.3, 1.5}) {
    Fixture f = toy("toy-llama", 3);
    EditTap tap = squeeze_top_two(size);
    f.planted = {nullptr, &tap};
    RunParams params;
    params.dtype = {DType::float64};
    params.max_new_tokens = 48;
    params.seeds = 1;
    Context context = f.context();
    run_experiment(context, params);
    std::int64_t small_margins = 0;
    for (const StepRecord& r : f.sink.steps) small_margins += r.same_prefix && r.margin_on < 2.0 * size;
    const ExperimentResult result = analyse_boundary(table_of(f.sink));
    const Json& margins = result.conditions[0]["margins"];
    EXPECT_GT(small_margins, 0) << size;
    EXPECT_EQ(margins["predicted"], small_margins) << size;
    EXPECT_EQ(margins["flips"], small_margins) << size;
    EXPECT_EQ(margins["share_explained"]["value"], 1.0);
    EXPECT_EQ(margins["share_of_predicted_that_flipped"]["value"], 1.0);
    EXPECT_EQ(result.verdict["kind"], "explained_by_margin");
  }
}

/// A pair of two steps, with a flip at `flip` and a mean KL of `kl`.
void add_pair(PairTable& table, const std::string& condition, int prompt, int seed, int flip, double kl) {
  PairRecord pair;
  pair.condition = condition;
  pair.prompt_id = fmt::format("p{}", prompt);
  pair.seed = seed;
  pair.pair_id = fmt::format("{}/{}/s{}", condition, pair.prompt_id, seed);
  pair.flip_index = flip;
  for (const double factor : {0.5, 1.5}) {
    StepRecord step;
    step.pair_id = pair.pair_id;
    step.kl_on_off_nats = factor * kl;
    step.margin_on = step.margin_off = 1.0 + std::sin(prompt);
    step.top1_equal = true;
    table.add(step);
  }
  table.add(pair);
}

const Json& row_of(const ExperimentResult& r, const char* kl, const char* flips, const char* unit) {
  for (const Json& row : r.conditions[0]["correlations"])
    if (row["kl"] == kl && row["flips"] == flips && row["unit"] == unit) return row;
  fail(ErrorKind::internal, "no such row");
}

// Five seeds that repeat one another add nothing: the clustered r, n and p are those of one seed.
TEST(Boundary, SeedsOfAPromptAreOneCluster) {
  PairTable one, five;
  std::vector<double> flips, kls;
  for (int prompt = 0; prompt < 20; ++prompt) {
    const int flip = 4 + prompt;
    const double kl = 1e-6 * (30 - prompt + 8 * std::cos(prompt * 1.7));
    flips.push_back(flip);
    kls.push_back(kl);
    add_pair(one, "float16/torch/top-k", prompt, 0, flip, kl);
    for (int seed = 0; seed < 5; ++seed) add_pair(five, "float16/torch/top-k", prompt, seed, flip, kl);
  }
  const ExperimentResult a = analyse_boundary(one), b = analyse_boundary(five);
  const Json &alone = row_of(a, "same-prefix", "all flips", "prompts"), &clustered = row_of(b, "same-prefix", "all flips", "prompts");
  const Json& published = row_of(b, "same-prefix", "all flips", "pairs, as published");
  EXPECT_EQ(clustered["n"], 20);
  EXPECT_EQ(published["n"], 100);
  EXPECT_NEAR(clustered["pearson"]["effect"].get<double>(), *pearson(flips, kls).effect, 1e-12);
  EXPECT_NEAR(clustered["pearson"]["p"].get<double>(), alone["pearson"]["p"].get<double>(), 1e-12);
  EXPECT_NEAR(published["pearson"]["effect"].get<double>(), clustered["pearson"]["effect"].get<double>(), 1e-12);
  EXPECT_LT(published["pearson"]["p"].get<double>(), 1e-3 * clustered["pearson"]["p"].get<double>())
      << "repeats taken for samples make p small";
  EXPECT_LT(clustered["pearson"]["effect"].get<double>(), -0.5);
  EXPECT_EQ(clustered["pearson"]["family"], "conditions × exclusions × KL");
}

TEST(Boundary, ThirdsAreThoseOfTheFlipsThatStay) {
  PairTable table;
  for (int prompt = 0; prompt < 30; ++prompt) add_pair(table, "float16/torch/top-k", prompt, 0, prompt, prompt < 10 ? 3e-6 + 1e-8 * prompt : 1e-6 + 1e-8 * prompt);
  const ExperimentResult r = analyse_boundary(table);
  const Json& all = row_of(r, "same-prefix", "all flips", "prompts");
  EXPECT_EQ(all["thirds"]["early_kl_nats"]["n"], 10);
  EXPECT_EQ(all["thirds"]["late_kl_nats"]["n"], 10);
  EXPECT_GT(all["welch"]["effect"].get<double>(), 1.5e-6);
  const Json& later = row_of(r, "same-prefix", "without flip ≤ 3", "prompts");
  EXPECT_EQ(later["n"], 26);
  EXPECT_GT(later["thirds"]["early_up_to"].get<double>(), all["thirds"]["early_up_to"].get<double>()) << "recomputed";
  EXPECT_EQ(r.verdict["kind"], "no_flips") << "the sampled tokens differ, the largest logit does not";
  EXPECT_EQ(r.conditions[0]["margins"]["of"], "changes of the largest logit");
}

TEST(Boundary, KlOverStepsHasItsWindows) {
  PairTable table;
  PairRecord pair;
  pair.condition = "float16/torch/greedy";
  pair.prompt_id = "a";
  for (int step = 0; step < 6; ++step) {
    StepRecord s;
    s.step = step;
    s.kl_on_off_nats = step;
    table.add(s);
  }
  table.add(pair);
  const Json rows = analyse_boundary(table).conditions[0]["kl_over_steps"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["steps"], "1");
  EXPECT_EQ(rows[1]["steps"], "2–3");
  EXPECT_EQ(rows[1]["kl_nats"]["value"], 2.5);
  EXPECT_EQ(rows[2]["steps"], "4–5");
}

TEST(Boundary, NothingThrowsOnFewOrNoFlips) {
  PairTable empty;
  EXPECT_THROW(analyse_boundary(empty), Error);
  PairTable table;
  PairRecord pair;
  pair.condition = "float16/torch/greedy";
  pair.prompt_id = "a";
  table.add(pair);  // a pair without a step
  const ExperimentResult r = analyse_boundary(table);
  EXPECT_EQ(r.verdict["kind"], "not_applicable");
  EXPECT_TRUE(row_of(r, "same-prefix", "all flips", "prompts")["pearson"]["p"].is_null());
  EXPECT_TRUE(row_of(r, "same-prefix", "all flips", "prompts")["pearson"]["reason"].is_string());
}

}  // namespace
}  // namespace kvdiv::test
