// Experiments 2 to 5 as a user runs them: flags, files, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Words = std::vector<std::string>;

Words with_output(Words words, const std::filesystem::path& output) {
  words.insert(words.end(), {"--output", output.string()});
  return words;
}

TEST(Drift, PrintsLayersAndWritesRecords) {
  const TempDir dir;
  const auto result = kvdiv_run(with_output({"drift", "--model", "toy-gemma2", "--limit", "2", "--dtype", "float16,float32"}, dir.path() / "a"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("residual stream"), HasSubstr("attention weights"), HasSubstr("norm"), HasSubstr("verdict: ")));
  EXPECT_THAT(read_text_file(dir.path() / "a" / kRecordsFile), HasSubstr("{\"type\":\"layer\",\"pair_id\":\"float16/torch/greedy/"));
  EXPECT_EQ(kvdiv_run({"report", (dir.path() / "a").string()}).out, result.out);
}

TEST(Patch, AnswersInOneTable) {
  const TempDir dir;
  const auto result = kvdiv_run(with_output({"patch", "--model", "toy-llama", "--limit", "2", "--max-steps", "6", "--step", "0,1,3"}, dir.path() / "a"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("what the difference is made of"), HasSubstr("by layer"), HasSubstr("by KV head"), HasSubstr("decay"),
                                HasSubstr("published protocol"), HasSubstr("controls: all 5 hold")));
  const Json controls = read_report(dir.path() / "a")["controls"];
  for (const char* key : {"self_patch_bit_equal", "everything_recovers"}) EXPECT_EQ(controls[key], true) << key;
  EXPECT_TRUE(controls["random_patch"].contains("median"));
}

TEST(Patch, RecordsAreTheSameBytesEveryTime) {
  const TempDir dir;
  const Words words{"patch", "--model", "toy-mistral", "--limit", "2", "--max-steps", "5", "--step", "1,3", "--quiet"};
  ASSERT_EQ(kvdiv_run(with_output(words, dir.path() / "a")).code, 0);
  ASSERT_EQ(kvdiv_run(with_output(words, dir.path() / "b"), {"LC_ALL=de_DE.UTF-8"}).code, 0);
  EXPECT_EQ(read_text_file(dir.path() / "a" / kRecordsFile), read_text_file(dir.path() / "b" / kRecordsFile));
}

TEST(Falsify, PartsWithoutAModelNeedNoPairs) {
  const TempDir dir;
  const auto result = kvdiv_run(with_output({"falsify", "--part", "propagation,projection", "--limit", "1"}, dir.path() / "a"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("propagation"), HasSubstr("projection")));
  EXPECT_EQ(read_text_file(dir.path() / "a" / kRecordsFile), "");
  EXPECT_THAT(kvdiv_run({"falsify", "--part", "dots"}).err, AllOf(HasSubstr("--part"), HasSubstr("dot")));
}

TEST(Noise, PrintsThresholds) {
  const TempDir dir;
  const auto result = kvdiv_run(with_output({"noise", "--limit", "2", "--max-steps", "5", "--kind", "gaussian", "--size", "0.01,1", "--noise-seeds", "1"}, dir.path() / "a"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("relative size"), HasSubstr("FP16's own error"), HasSubstr("controls: all 2 hold")));
  EXPECT_EQ(kvdiv_run({"noise", "--size", "-1"}).code, 2);
}

class Boundary : public testing::Test {
 protected:
  std::filesystem::path run() {
    const auto path = dir_.path() / "run";
    const auto result = kvdiv_run({"run", "--prompts", short_prompts(), "--max-new-tokens", "16", "--strategy", "greedy,top-k", "--seeds", "2", "--output", path.string(), "--quiet"});
    EXPECT_EQ(result.code, 0) << result.err;
    return path;
  }
  TempDir dir_;
};

TEST_F(Boundary, ReadsARunAndDecodesNothing) {
  const auto source = run();
  const auto result = kvdiv_run(with_output({"boundary", source.string()}, dir_.path() / "b"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("kvdiv boundary"), HasSubstr("float16/torch/greedy"), HasSubstr("float16/torch/top-k"), HasSubstr("verdict: ")));
  const Json report = read_report(dir_.path() / "b");
  EXPECT_EQ(report["model"]["name"], "toy-llama");
  EXPECT_EQ(report["conditions"].size(), 2u);
  const auto as_json = kvdiv_run(with_output({"boundary", source.string(), "--json", "--quiet", "--overwrite"}, dir_.path() / "b"));
  EXPECT_EQ(Json::parse(as_json.out)["conditions"], report["conditions"]);
}

TEST_F(Boundary, ATornLastLineIsDroppedAndABadOneIsNamed) {
  dir_.holds_broken_results();
  const auto source = run();
  const std::string text = read_text_file(source / kRecordsFile);
  write_text_file_atomically(source / kRecordsFile, text + "{\"type\":\"step\",\"pair_id\":\"half");
  EXPECT_EQ(kvdiv_run(with_output({"boundary", source.string()}, dir_.path() / "b")).code, 0);
  write_text_file_atomically(source / kRecordsFile, "{}\n" + text);
  const auto bad = kvdiv_run(with_output({"boundary", source.string()}, dir_.path() / "c"));
  EXPECT_EQ(bad.code, 3);
  EXPECT_THAT(bad.err, HasSubstr("line 1"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "c")) << "nothing half-written is left behind";
}

TEST_F(Boundary, RefusesWhatIsNotAResult) {
  EXPECT_EQ(kvdiv_run({"boundary"}).code, 2);
  EXPECT_EQ(kvdiv_run({"boundary", "/no/such/directory"}).code, 3);
  EXPECT_EQ(kvdiv_run({"boundary", "a", "b"}).code, 2);
  const auto other = dir_.path() / "drift";
  ASSERT_EQ(kvdiv_run({"drift", "--limit", "1", "--quiet", "--output", other.string()}).code, 0);
  const auto result = kvdiv_run({"boundary", other.string()});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("kvdiv drift"));
  EXPECT_EQ(kvdiv_run({"boundary", "a", "--limit", "3"}).code, 2) << "a flag that a command does not use";
}

TEST(Paper, HasItsProtocolFromTheConfiguration) {
  const auto config = Json::parse(kvdiv_run({"paper", "--print-config"}).out);
  EXPECT_EQ(config["sample_size"], 700);
  EXPECT_EQ(config["sample_seed"], 42);
  EXPECT_EQ(config["seeds"], 5);
  EXPECT_EQ(config["max_new_tokens"], 128);
  EXPECT_EQ(config["samples"], 600);
  EXPECT_EQ(config["max_steps"], 32);
  EXPECT_EQ(config["strategy"], Json({"greedy", "top-k", "top-p"}));
  EXPECT_EQ(Json::parse(kvdiv_run({"paper", "--print-config", "--seeds", "2"}).out)["seeds"], 2) << "flags win";
  const auto one_seed = Json::parse(kvdiv_run({"paper", "--print-config", "--seed", "3,4"}).out);
  EXPECT_EQ(one_seed["seed"], Json({3, 4})) << "the protocol's --seeds does not stand against it";
  EXPECT_EQ(kvdiv_run({"paper", "--seed", "3", "--seeds", "2"}).code, 2);
  const auto own = Json::parse(kvdiv_run({"paper", "--print-config", "--prompts", "mine.jsonl"}).out);
  EXPECT_TRUE(own["sample_size"].is_null()) << "a file is used whole";
}

TEST(Paper, RunsAllFive) {
  const TempDir dir;
  const auto result = kvdiv_run(with_output({"paper", "--model", "toy-gemma2", "--prompts", short_prompts(), "--limit", "2", "--seeds", "1", "--max-new-tokens", "4"}, dir.path() / "a"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("the paper's five questions"), HasSubstr("published and measured"), HasSubstr("10.68 to 12.83"),
                                HasSubstr("what the difference is made of"), HasSubstr("verdict: ")));
  const Json report = read_report(dir.path() / "a");
  EXPECT_EQ(report["complete"], true);
  EXPECT_EQ(report["questions"].size(), 5u);
  EXPECT_EQ(kvdiv_run({"report", (dir.path() / "a").string()}).out, result.out);
  const auto boundary = kvdiv_run(with_output({"boundary", (dir.path() / "a").string()}, dir.path() / "b"));
  EXPECT_EQ(boundary.code, 0) << "a paper's records hold a run: " << boundary.err;
}

}  // namespace
}  // namespace kvdiv::test
