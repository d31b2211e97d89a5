// Shards and their joining, as a user does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class MergeCli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    run("whole", {});
    for (const char* i : {"0", "1", "2"}) run(std::string("shard") + i, {"--shard", std::string(i) + "/3"});
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static void run(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",        "--limit",      "4",         "--max-new-tokens", "8",       "--dtype", "float16,bfloat16",
                                       "--strategy", "greedy,top-k", "--seeds", "2",                "--quiet", "--output", path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = kvdiv_run(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  static std::string path(const std::string& name) { return (dir_->path() / name).string(); }
  static ProcessResult merge(std::vector<std::string> names, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"merge"};
    for (const std::string& name : names) arguments.push_back(path(name));
    arguments.insert(arguments.end(), {"--quiet", "--output", path("joined")});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kvdiv_run(arguments);
  }
  /// A copy of a shard whose report is changed.
  static std::string changed(const std::string& name, const std::string& as, const std::function<void(Json&)>& change) {
    fs::remove_all(path(as));
    fs::copy(path(name), path(as));
    Json report = read_report(path(as));
    change(report);
    write_text_file_atomically(fs::path(path(as)) / kReportFile, report.dump());
    return as;
  }
  static void expect_refused(const ProcessResult& result, int code, const std::string& says) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_FALSE(fs::exists(path("joined"))) << "nothing is left behind";
  }
  void TearDown() override { fs::remove_all(path("joined")); }
  static inline std::unique_ptr<TempDir> dir_;
};

TEST_F(MergeCli, GivesOneRunsRecordsAndReport) {
  const auto result = merge({"shard2", "shard0", "shard1"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("verdict: "));
  EXPECT_TRUE(read_text_file(fs::path(path("joined")) / kRecordsFile) == read_text_file(fs::path(path("whole")) / kRecordsFile));
  Json whole = read_report(path("whole")), joined = read_report(path("joined"));
  for (Json* report : {&whole, &joined}) {
    for (const char* key : {"created_utc", "argv", "timing"}) report->erase(key);
    for (Json& c : (*report)["conditions"]) c.erase("timing");
  }
  EXPECT_EQ(whole, joined);
  EXPECT_EQ(kvdiv_run({"check", path("joined"), "--contract", (root() / "configs/contracts/float16.json").string()}).code,
            kvdiv_run({"check", path("whole"), "--contract", (root() / "configs/contracts/float16.json").string()}).code);
}

TEST_F(MergeCli, PairsAreSplitWithoutOverlap) {
  std::multiset<std::string> split_ids, whole_ids;
  const auto collect = [](const std::string& directory, std::multiset<std::string>& ids) {
    for (const std::string& line : split(read_text_file(fs::path(directory) / kRecordsFile), '\n'))
      if (line.starts_with("{\"type\":\"pair\"")) ids.insert(Json::parse(line)["pair_id"].get<std::string>());
  };
  for (const char* name : {"shard0", "shard1", "shard2"}) collect(path(name), split_ids);
  collect(path("whole"), whole_ids);
  EXPECT_EQ(split_ids, whole_ids);
  EXPECT_EQ(whole_ids.size(), 2u * (4 + 8));
  EXPECT_EQ(std::set(whole_ids.begin(), whole_ids.end()).size(), whole_ids.size());
}

TEST_F(MergeCli, RefusesWhatIsNotAllShardsOfOneRun) {
  expect_refused(merge({"shard0", "shard1"}), 2, "shard 2 of 3 is missing");
  expect_refused(merge({"shard0", "shard1", "shard1"}), 2, "are both shard 1 of 3");
  expect_refused(merge({"shard0", "whole"}), 2, "one of 3 shards");
  expect_refused(merge({"shard0", "shard1", "nowhere"}), 3, "is not there");
  expect_refused(merge({}), 2, "kvdiv merge takes");
  const std::string other = changed("shard2", "other", [](Json& r) { r["experiment"]["params"]["max_new_tokens"] = 9; });
  expect_refused(merge({"shard0", "shard1", other}), 2, "experiment.params.max_new_tokens is 8 in ");
  const std::string torn = changed("shard2", "torn", [](Json& r) { r["complete"] = false; });
  expect_refused(merge({"shard0", "shard1", torn}), 3, "was interrupted; finish it first");
  const std::string damaged = changed("shard2", "damaged", [](Json&) {});
  fs::resize_file(fs::path(path("damaged")) / kRecordsFile, fs::file_size(fs::path(path("damaged")) / kRecordsFile) - 10);
  expect_refused(merge({"shard0", "shard1", damaged}), 3, "no newline behind it");
  expect_refused(merge({"shard0", "shard1", changed("shard2", "drift", [](Json& r) { r["experiment"]["name"] = "drift"; })}), 2,
                 "not a result of kvdiv run");
  fs::remove_all(path("drift"));  // not what a report of drift is
}

TEST_F(MergeCli, UnlikeEnvironmentsOnlyWithForceAndAWarning) {
  const std::string other = changed("shard1", "elsewhere", [](Json& r) { r["environment"]["cpu"] = "another CPU"; });
  expect_refused(merge({"shard0", other, "shard2"}), 2, "environment.cpu");
  const auto forced = merge({"shard0", other, "shard2"}, {"--force"});
  ASSERT_EQ(forced.code, 0) << forced.err;
  bool is_warned = false;
  const Json report = read_report(path("joined"));
  for (const Json& w : report["warnings"])
    is_warned = is_warned || (w["code"] == "unlike_environments" && w["message"].get<std::string>().find("another CPU") != std::string::npos);
  EXPECT_TRUE(is_warned);
}

/// A control that failed in one shard has failed.
TEST_F(MergeCli, AFailedControlOfAShardFailsTheWhole) {
  const std::string bad = changed("shard1", "bad", [](Json& r) { r["controls"]["off_off_bit_equal"] = false; });
  const auto result = merge({"shard0", bad, "shard2"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.out, HasSubstr("off_off_bit_equal failed"));
  EXPECT_EQ(read_report(path("joined"))["verdict"]["kind"], "invalid");
}

}  // namespace
}  // namespace kvdiv::test
