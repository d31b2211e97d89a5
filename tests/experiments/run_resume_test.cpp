// A run that goes on with what an interrupted one has left, and one whose shards are joined: the result of one run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/decode/faults.h"
#include "kvdiv/experiments/run_merge.h"
#include "kvdiv/experiments/run.h"
#include "support/experiment.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

/// A sink that holds the first pairs of another run.
class ResumedSink final : public RecordSink {
 public:
  ResumedSink(const MemorySink& from, std::size_t n_pairs) : from_(from), n_pairs_(n_pairs) {}
  void write(std::string_view, const Json&) override { ++n_written; }
  void see(const StepRecord&) override { ++n_seen; }
  void see(const PairRecord&) override { ++n_seen; }
  void commit() override { ++n_commits; }
  void checkpoint(const ExperimentResult&) override {}
  int n_written = 0, n_seen = 0, n_commits = 0;

 private:
  std::optional<FinishedPair> next_finished(const std::string& pair_id) override {
    if (at_ == n_pairs_) return std::nullopt;
    FinishedPair pair{{}, from_.pairs[at_++]};
    EXPECT_EQ(pair.pair.pair_id, pair_id);
    for (const StepRecord& step : from_.steps)
      if (step.pair_id == pair_id) pair.steps.push_back(step);
    return pair;
  }
  const MemorySink& from_;
  std::size_t n_pairs_, at_ = 0;
};

RunParams several_conditions() {
  RunParams p;
  p.dtype = {DType::float16, DType::bfloat16};
  p.strategy = {Strategy::greedy, Strategy::top_p};
  p.max_new_tokens = 10;
  p.seeds = 2;
  return p;
}

Json without_timing(Json conditions) {
  for (Json& c : conditions) c.erase("timing");
  return conditions;
}

void expect_same(const ExperimentResult& a, const ExperimentResult& b) {
  EXPECT_EQ(without_timing(a.conditions), without_timing(b.conditions));
  EXPECT_EQ(a.controls, b.controls);
  EXPECT_EQ(a.verdict, b.verdict);
  EXPECT_EQ(a.extra["fp64_check"], b.extra["fp64_check"]);
  EXPECT_TRUE(b.complete);
}

ExperimentResult run_into(Fixture& f, const RunParams& params, RecordSink& sink, Shard shard = {}) {
  Context c = f.context();
  Context own{c.config, c.prompts, c.load, c.detokenize, sink, c.warnings, c.progress, c.planted, c.device, shard};
  return run_experiment(own, params);
}

TEST(Resume, GivesTheUninterruptedResultFromEveryPair) {
  Fixture f = toy("toy-llama", 2);
  const RunParams params = several_conditions();
  const ExperimentResult whole = run_into(f, params, f.sink);
  ASSERT_EQ(f.sink.pairs.size(), 2u * (2 + 4));
  for (const std::size_t n : {std::size_t{1}, std::size_t{3}, std::size_t{7}, f.sink.pairs.size()}) {
    Fixture again = toy("toy-llama", 2);
    ResumedSink sink(f.sink, n);
    const ExperimentResult resumed = run_into(again, params, sink);
    SCOPED_TRACE(n);
    expect_same(whole, resumed);
    EXPECT_EQ(sink.n_commits, static_cast<int>(f.sink.pairs.size() - n)) << "what was there is not written again";
    EXPECT_EQ(again.warnings.all().size(), f.warnings.all().size());
  }
}

/// The records that are there carry what the controls need: other bits in this process are seen.
TEST(Resume, ControlsHoldThePairsThatWereThereAgainstThisProcess) {
  Fixture f = toy("toy-llama", 1);
  RunParams params = several_conditions();
  params.dtype = {DType::float16};
  params.strategy = {Strategy::greedy};
  run_into(f, params, f.sink);
  MemorySink other = {};
  other.steps = f.sink.steps;
  other.pairs = f.sink.pairs;
  other.pairs[0].logits_sha256_off[0] ^= 1;
  ResumedSink sink(other, 1);
  const ExperimentResult resumed = run_into(f, params, sink);
  EXPECT_EQ(resumed.verdict["kind"], "invalid");
  EXPECT_EQ(resumed.controls["order_independent"], false);
}

TEST(Resume, APairOfAnotherPromptIsRefused) {
  Fixture f = toy("toy-llama", 1);
  run_into(f, several_conditions(), f.sink);
  f.sink.pairs[0].prompt_sha256 = "feed";
  ResumedSink sink(f.sink, 1);
  EXPECT_THROW(run_into(f, several_conditions(), sink), Error);
}

struct Joined {
  ExperimentResult result;
  std::string text;
};

/// Every shard as a run of its own, then all of them joined from records and reports.
Joined join(std::size_t n_prompts, const Planted& planted, const RunParams& params, std::int64_t n_shards) {
  std::vector<std::unique_ptr<Fixture>> shards;
  std::vector<Json> reports;
  for (std::int64_t i = 0; i < n_shards; ++i) {
    shards.emplace_back(new Fixture(toy("toy-llama", n_prompts)));
    Fixture& f = *shards.back();
    f.planted = planted;
    const ExperimentResult r = run_into(f, params, f.sink, {i, n_shards});
    Json report = {{"controls", r.controls}, {"conditions", r.conditions}, {"verdict", r.verdict}, {"warnings", to_json_value(f.warnings.all())}};
    report.update(r.extra);
    reports.push_back(Json::parse(report.dump()));
  }
  Joined joined;
  std::vector<std::size_t> at(shards.size(), 0);
  ShardsInput input;
  input.params = to_json_value(params);
  input.n_layers = shards.front()->config.sizes.n_layers;
  input.n_prompts = shards.front()->prompts.size();
  input.shard_reports = reports;
  input.next_pair = [&](std::size_t shard) {
    const MemorySink& sink = shards[shard]->sink;
    FinishedPair pair{{}, sink.pairs.at(at[shard]++)};
    for (const StepRecord& step : sink.steps)
      if (step.pair_id == pair.pair.pair_id) {
        pair.steps.push_back(step);
        joined.text += "step" + to_json_value(step).dump() + "\n";
      }
    joined.text += "pair" + to_json_value(pair.pair).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    return pair;
  };
  Warnings warnings;
  joined.result = merge_shards(input, warnings);
  return joined;
}

TEST(Merge, GivesTheResultOfOneRunForAnyNumberOfShards) {
  const RunParams params = several_conditions();
  Fixture f = toy("toy-llama", 3);
  const ExperimentResult whole = run_into(f, params, f.sink);
  for (const std::int64_t n : {1, 2, 3, 5}) {
    SCOPED_TRACE(n);
    const Joined joined = join(3, {}, params, n);
    expect_same(whole, joined.result);
    EXPECT_EQ(joined.text, f.sink.text);
    EXPECT_GT(joined.result.conditions[0]["timing"]["on_tokens_per_s"].get<double>(), 0.0);
  }
}

/// A fault is found by the shards and stays found, with its diagnosis.
TEST(Merge, KeepsABugAndItsDiagnosis) {
  FaultSpec spec;
  spec.fault = Fault::rotary_off_by_one;
  const PlantedFault fault(spec);
  RunParams params = several_conditions();
  params.dtype = {DType::float16};
  Fixture f = toy("toy-llama", 2);
  f.planted = fault.planted();
  const ExperimentResult whole = run_into(f, params, f.sink);
  ASSERT_EQ(whole.verdict["kind"], "bug");
  expect_same(whole, join(2, fault.planted(), params, 2).result);
}

TEST(Shard, ThatHoldsNothingIsRefused) {
  Fixture f = toy("toy-llama", 2);
  RunParams params = several_conditions();
  EXPECT_NO_THROW(require_shard(params, 2, {3, 9})) << "two prompts, two seeds: four pairs of top-p";
  try {
    require_shard(params, 2, {4, 9});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("use at most 4 shards"));
  }
}

}  // namespace
}  // namespace kvdiv::test
