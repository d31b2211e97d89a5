// `paper`: the five in one, and every published number beside a measured one.
#include "kvdiv/experiments/paper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "experiments/paper_parts.h"
#include "kvdiv/experiments/run.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

Json published() { return read_json_file(root() / "configs" / "paper_published.json"); }

PaperParams quick() {
  PaperParams p;
  p.strategy = {Strategy::greedy, Strategy::top_k, Strategy::top_p};
  p.max_new_tokens = 10;
  p.seeds = 2;
  return p;
}

ExperimentResult paper(Fixture& f, const PaperParams& params, const Json& values) {
  Context context = f.context();
  return run_paper(context, params, values);
}

/// One run of all five, looked at by several tests.
struct Once {
  Fixture f = toy("toy-llama", 3);
  int n_loads = 0;
  ExperimentResult r;
  Once() {
    const auto loader = f.loader;
    f.loader = [this, loader](DType d, const std::string& attention) {
      n_loads += d == DType::float16;
      return loader(d, attention);
    };
    r = paper(f, quick(), published());
  }
};
Once& once() {
  static Once o;
  return o;
}

TEST(Paper, AnswersTheFiveQuestions) {
  const ExperimentResult& r = once().r;
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(once().n_loads, 1) << "the weights of the run are used again";
  ASSERT_EQ(r.extra["questions"].size(), 5u);
  std::set<int> experiments;
  for (const Json& q : r.extra["questions"]) {
    experiments.insert(q["experiment"].get<int>());
    EXPECT_TRUE(q["verdict"].is_string()) << q;
    EXPECT_NE(q["verdict"], "invalid") << q;
    EXPECT_FALSE(q["sentence"].get<std::string>().empty());
  }
  EXPECT_EQ(experiments, (std::set<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(r.conditions.size(), 3u);
  for (const char* part : {"drift", "falsify", "boundary", "patch"})
    EXPECT_TRUE(r.extra["experiments"].contains(part)) << part;
  for (const auto& [name, value] : r.controls.items())
    if (value.is_boolean()) { EXPECT_EQ(value, true) << name; }
  for (const char* type : {"pair", "step", "layer", "head", "patch"}) EXPECT_GT(once().f.sink.n_records[type], 0) << type;
}

TEST(Paper, EveryPublishedNumberHasItsRow) {
  const Json values = published();
  const ExperimentResult& r = once().r;
  ASSERT_EQ(r.extra["published"].size(), values["published"].size());
  EXPECT_GE(values["published"].size(), 28u);
  std::set<std::string> ids;
  for (const Json& row : r.extra["published"]) {
    ids.insert(row["id"].get<std::string>());
    EXPECT_TRUE(row["published"].is_string());
    EXPECT_TRUE(row["measured"].is_string()) << row;
    EXPECT_FALSE(row["why"].get<std::string>().empty()) << row;
  }
  EXPECT_EQ(ids.size(), values["published"].size());
}

TEST(Paper, APublishedNumberThatNobodyComputesIsRefused) {
  Json unknown = published();
  unknown["published"].push_back({{"id", "no_such"}, {"experiment", 1}, {"quantity", "x"}, {"published", "1"}});
  EXPECT_THROW(paper_comparison(unknown, PaperParts{once().r, {}, {}, {}, {}}), Error);
}

// The records of `run` are the first ones, byte for byte those that `run` alone writes.
TEST(Paper, RunsRecordsAreTheSameAsAlone) {
  Fixture alone = toy("toy-llama", 3);
  RunParams run;
  static_cast<DecodeParams&>(run) = quick();
  Context context = alone.context();
  run_experiment(context, run);
  ASSERT_GT(alone.sink.text.size(), 1000u);
  EXPECT_EQ(once().f.sink.text.substr(0, alone.sink.text.size()), alone.sink.text);
}

TEST(Paper, AFaultInThePrefillMakesItInvalid) {
  Fixture f = toy("toy-llama", 1);
  EditTap tap = add_at(Site::block, 1, 0.05);
  f.planted = {nullptr, &tap};
  const ExperimentResult r = paper(f, quick(), published());
  EXPECT_EQ(r.verdict["kind"], "invalid");
}

TEST(Paper, RefusesWhatCannotBe) {
  PaperParams p = quick();
  p.max_new_tokens = 1;
  EXPECT_THROW(validate(p), Error);
  p = quick();
  p.samples = 0;
  EXPECT_THROW(validate(p), Error);
}

}  // namespace
}  // namespace kvdiv::test
