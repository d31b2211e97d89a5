// Reports that somebody has changed: every command that reads one says what is wrong with it, or takes it; none has a defect.
#include <gtest/gtest.h>

#include <array>

#include "kvdiv/base/error.h"
#include "kvdiv/cli/app.h"
#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;

/// Every value of a report, the first of each list for all.
void collect(const Json& v, const Json::json_pointer& at, std::vector<Json::json_pointer>& out) {
  if (!at.empty()) out.push_back(at);
  if (v.is_array() && !v.empty()) collect(v.front(), at / 0, out);
  if (v.is_object())
    for (const auto& [key, member] : v.items()) collect(member, at / key, out);
}

class Malformed : public testing::Test {
 protected:
  Malformed() {
    dir_.holds_broken_results();
    const auto run = kvdiv_run({"run", "--prompts", short_prompts(), "--limit", "1", "--max-new-tokens", "3", "--quiet", "--output", source().string()});
    EXPECT_EQ(run.code, 0) << run.err;
  }
  fs::path source() const { return dir_.path() / "r"; }

  /// The command's words with a result; how often it refused.
  int refused(const std::vector<std::string>& words, const std::string& what) const {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    int n = 0;
    try {
      run_command_line(words);
    } catch (const Error& error) {
      n = 1;
      EXPECT_TRUE(error.kind() == ErrorKind::unreadable || error.kind() == ErrorKind::usage) << words.front() << ", " << what << ": " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << words.front() << ", " << what << ": a defect: " << error.what();
    }
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    return n;
  }
  TempDir dir_;
};

TEST_F(Malformed, ReportsAreRefusedOrReadByEveryCommand) {
  const std::string r = source().string(), out = (dir_.path() / "out").string();
  const std::string contract = std::string(KVDIV_TEST_ROOT) + "/configs/contracts/float16.json";
  const std::vector<std::vector<std::string>> commands{{"report", r},
                                                       {"report", r, "--csv", out},
                                                       {"report", r, r, "--html", out + ".html"},
                                                       {"boundary", r, "--quiet", "--overwrite", "--output", out},
                                                       {"merge", r, "--quiet", "--overwrite", "--output", out},
                                                       {"check", r, "--contract", contract, "--against", r}};
  const Json report = read_report(source());
  std::vector<Json::json_pointer> all;
  collect(report, Json::json_pointer(), all);
  ASSERT_GT(all.size(), 200u);
  const std::array<Json, 7> values{nullptr, 7, "text", true, Json::array(), Json::object(), Json::array({Json::array()})};
  std::size_t n = 0;
  int n_refused = 0;
  for (const Json::json_pointer& at : all)
    for (const std::size_t stride : {0u, 3u}) {
      Json changed = report;
      changed[at] = values[(n + stride) % values.size()];
      write_text_file_atomically(source() / kReportFile, changed.dump());
      const auto& words = commands[n++ % commands.size()];
      n_refused += refused(words, at.to_string() + " is " + changed[at].dump());
    }
  EXPECT_GT(n_refused, 10);
  EXPECT_LT(n_refused, static_cast<int>(n) / 2) << "most of a report is shown whatever one value is";
}

TEST_F(Malformed, AReportToBeResumedIsNamed) {
  for (const char* key : {"complete", "experiment", "model", "numerics", "created_utc", "records"}) {
    Json report = read_report(source());
    report[key] = Json::array({7});
    write_text_file_atomically(source() / kReportFile, report.dump());
    const int n = refused({"run", "--prompts", short_prompts(), "--limit", "1", "--max-new-tokens", "3", "--quiet", "--resume", "--output", source().string()}, key);
    if (n == 0) {
      EXPECT_EQ(read_report(source())["complete"], true) << key;
    }
    fs::remove_all(source());
    kvdiv_run({"run", "--prompts", short_prompts(), "--limit", "1", "--max-new-tokens", "3", "--quiet", "--output", source().string()});
  }
}

}  // namespace
}  // namespace kvdiv::test
