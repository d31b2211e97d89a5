// `kvdiv selftest` as a user runs it: flags, exit code, keys, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Selftest, NamesEveryRowOfAModel) {
  const TempDir dir;
  const std::filesystem::path prompts = dir.path() / "p.jsonl";
  write_text_file_atomically(prompts, "{\"ids\":[1,5,9,12,40,77,3,8,61,22,90,14,33,7]}\n{\"ids\":[1,8,2,60,31,4,90,11,5,70,29,44,3,16]}\n");
  const auto good = kvdiv_run({"selftest", "--model", golden_dir("tiny-mistral").string(), "--prompts", prompts.string(), "--dtype", "float16",
                               "--max-steps", "4", "--output", (dir.path() / "a").string()});
  ASSERT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, AllOf(HasSubstr("what was planted"), HasSubstr("signatures"), HasSubstr("not planted"), HasSubstr("attention scores are not capped"),
                              HasSubstr("verdict: holds")));
  const Json report = read_report(dir.path() / "a");
  EXPECT_EQ(report["complete"], true);
  EXPECT_GE(report["matrix"].size(), 14u);
  for (const Json& row : report["matrix"]) {
    EXPECT_EQ(row["named"], row["planted"]);
    for (const char* key : {"model", "ok", "signature"}) EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(kvdiv_run({"report", (dir.path() / "a").string()}).out, good.out);
}

TEST(Selftest, RefusesWhatItCannotTell) {
  const auto result = kvdiv_run({"selftest", "--dtype", "float64"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--dtype"));
  EXPECT_EQ(kvdiv_run({"selftest", "--limit", "0"}).code, 3) << "no prompts, nothing to plant in";
  EXPECT_THAT(kvdiv_run({"selftest", "--print-config"}).out, AllOf(HasSubstr("toy-gemma2"), HasSubstr("invariant"), HasSubstr("\"limit\": 2")));
}

}  // namespace
}  // namespace kvdiv::test
