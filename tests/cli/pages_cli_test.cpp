// --html and --csv of the commands that write a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PagesCli : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  ProcessResult run(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"run", "--prompts", short_prompts(), "--limit", "2", "--max-new-tokens", "4", "--quiet", "--output", path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kvdiv_run(arguments);
  }
  std::string text(const std::string& name) const { return read_text_file(dir_.path() / name); }
  TempDir dir_;
};

TEST_F(PagesCli, AreThoseOfReport) {
  ASSERT_EQ(run("result", {"--html", path("run.html"), "--csv", path("tables")}).code, 0);
  ASSERT_EQ(kvdiv_run({"report", path("result"), "--html", path("report.html")}).code, 0);
  EXPECT_EQ(text("run.html"), text("report.html"));
  EXPECT_THAT(text("tables/pair.csv"), HasSubstr("pair_id,"));
  const auto boundary = kvdiv_run({"boundary", path("result"), "--quiet", "--output", path("boundary"), "--html", path("boundary.html"), "--csv", path("of-boundary")});
  ASSERT_EQ(boundary.code, 0) << boundary.err;
  EXPECT_THAT(text("boundary.html"), HasSubstr("\"name\":\"boundary\""));
  EXPECT_THAT(text("of-boundary/conditions.csv"), HasSubstr("n_steps"));
}

TEST_F(PagesCli, MayBeInTheDirectoryThatTheCommandMakes) {
  const auto result = run("new/", {"--html", path("new/page.html"), "--csv", path("new/tables")});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(fs::exists(path("new/page.html")) && fs::exists(path("new/tables/pair.csv")));
}

TEST_F(PagesCli, OfAMergeAreThoseOfTheJoinedResult) {
  ASSERT_EQ(run("0", {"--shard", "0/2"}).code, 0);
  ASSERT_EQ(run("1", {"--shard", "1/2"}).code, 0);
  const auto merged = kvdiv_run({"merge", path("0"), path("1"), "--quiet", "--output", path("joined"), "--html", path("joined.html"), "--csv", path("tables")});
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_THAT(text("joined.html"), HasSubstr("\"n_pairs\":2"));
  EXPECT_TRUE(fs::exists(path("tables/step.csv")));
}

TEST_F(PagesCli, ThatCannotBeWrittenAreRefusedBeforeAnythingIsDecoded) {
  write_text_file_atomically(path("file"), "");
  for (const auto& [flag, place, says] : std::vector<std::array<std::string, 3>>{
           {"--html", path("no/such.html"), "there is no directory"}, {"--html", dir_.path().string(), "is a directory"}, {"--csv", path("file"), "is not a directory"}}) {
    const auto result = run("result", {flag, place});
    EXPECT_EQ(result.code, 3);
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_FALSE(fs::exists(path("result"))) << "nothing was begun";
  }
}

}  // namespace
}  // namespace kvdiv::test
