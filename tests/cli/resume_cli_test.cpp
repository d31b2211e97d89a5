// A run that is killed, and gone on with: the program as a user has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <random>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Short prompts: a run of half a second, most of it spent in loading, deciding and writing.
std::vector<std::string> short_run(const fs::path& prompts, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"run", "--prompts", prompts.string(), "--max-new-tokens", "8", "--dtype", "float16,float32", "--strategy", "greedy,top-p",
                                     "--seeds", "2", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> with(std::vector<std::string> arguments, const fs::path& output, const std::vector<std::string>& more = {}) {
  arguments.insert(arguments.end(), {"--output", output.string()});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// What must be the same whatever happened on the way: everything but times and how it was called.
Json comparable(const fs::path& directory) {
  Json report = read_report(directory);
  for (const char* key : {"created_utc", "argv", "timing"}) report.erase(key);
  for (Json& c : report["conditions"]) c.erase("timing");
  return report;
}

void expect_same_result(const fs::path& a, const fs::path& b) {
  EXPECT_TRUE(read_text_file(a / kRecordsFile) == read_text_file(b / kRecordsFile));
  EXPECT_EQ(comparable(a), comparable(b));
}

std::uintmax_t size_of_file(const fs::path& file) {
  std::error_code code;
  const auto size = fs::file_size(file, code);
  return code ? 0 : size;
}

class Resumed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    std::string prompts;
    for (int i = 0; i < 8; ++i) prompts += fmt::format("{{\"ids\": [1, {}, {}, {}]}}\n", 400 + i, 300 + 7 * i, 260 + i * i);
    write_text_file_atomically(path("prompts.jsonl"), prompts);
    const auto start = std::chrono::steady_clock::now();
    const auto whole = kvdiv_run(with(run(), dir_->path() / "whole"));
    ASSERT_EQ(whole.code, 0) << whole.err;
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static fs::path path(const std::string& name) { return dir_->path() / name; }
  static std::vector<std::string> run(const std::vector<std::string>& more = {"--quiet"}) { return short_run(path("prompts.jsonl"), more); }

  static inline std::unique_ptr<TempDir> dir_;
  static inline double seconds_ = 0.0;
};

/// Killed thirty times and more, at any moment: while it loads, between pairs, in the controls, while it writes. When a run
/// gets through, the next begins. Each third time it is asked to stop (SIGTERM), or its last line is torn as a power cut tears it.
TEST_F(Resumed, KilledAnywhereEndsWithTheSameBytes) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> moment(0.0, seconds_ * 1.1);
  int n_killed = 0, n_torn = 0, n_finished = 0;
  const fs::path out = path("killed");
  for (int i = 0; n_killed < 30 || n_torn < 1 || n_finished < 1; ++i) {
    ASSERT_LT(i, 300);
    Process process(with(run(), out, {"--resume"}));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
    process.send(i % 3 == 0 ? SIGTERM : SIGKILL);
    const auto result = process.wait();
    ASSERT_THAT(result.code, testing::AnyOf(0, 5, 128 + SIGKILL, 128 + SIGTERM)) << result.err;
    if (result.code == 0) {
      ++n_finished;
      expect_same_result(path("whole"), out);
      fs::remove_all(out);
      continue;
    }
    ++n_killed;
    const auto size = size_of_file(out / kRecordsFile);
    if (i % 3 == 1 && size > 100) {
      fs::resize_file(out / kRecordsFile, size - 37);
      ++n_torn;
    }
  }
  const auto last = kvdiv_run(with(run(), out, {"--resume"}));
  ASSERT_EQ(last.code, 0) << last.err;
  expect_same_result(path("whole"), out);
}

TEST_F(Resumed, OnceInTheMiddleOfALine) {
  const fs::path out = path("line");
  fs::copy(path("whole"), out);
  Json report = read_report(out);
  report["complete"] = false;
  write_text_file_atomically(out / kReportFile, report.dump());
  const std::string text = read_text_file(out / kRecordsFile);
  fs::resize_file(out / kRecordsFile, text.find('\n', text.size() / 2) - 50);
  const auto result = kvdiv_run(with(run({}), out, {"--resume"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("pairs were there"), HasSubstr("no newline behind it")));
  expect_same_result(path("whole"), out);
}

/// A power cut may keep a report that says "complete" and lose the end of the records.
TEST_F(Resumed, ACompleteReportWithoutAllOfItsRecordsIsGoneOnWith) {
  const fs::path out = path("cut");
  fs::copy(path("whole"), out);
  fs::resize_file(out / kRecordsFile, size_of_file(out / kRecordsFile) / 2);
  const auto result = kvdiv_run(with(run(), out, {"--resume"}));
  ASSERT_EQ(result.code, 0) << result.err;
  expect_same_result(path("whole"), out);
}

TEST_F(Resumed, ACompleteOneIsPrintedAgain) {
  fs::copy(path("whole"), path("complete"));
  const auto before = fs::last_write_time(path("complete") / kReportFile);
  const auto result = kvdiv_run(with(run(), path("complete"), {"--resume"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, kvdiv_run({"report", path("whole").string()}).out);
  EXPECT_EQ(fs::last_write_time(path("complete") / kReportFile), before);
}

/// Every other setting is another run; the first difference is named, and nothing is touched.
TEST_F(Resumed, AnotherRunIsRefused) {
  fs::copy(path("whole"), path("other"));
  const std::string records = read_text_file(path("other") / kRecordsFile);
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const auto result = kvdiv_run(with(arguments, path("other"), {"--resume"}));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(read_text_file(path("other") / kRecordsFile), records);
    return result.err;
  };
  const auto changed = [&](const std::string& value, const std::string& to) {
    auto words = run();
    std::replace(words.begin(), words.end(), value, to);
    return words;
  };
  EXPECT_THAT(refused(changed("8", "9")), HasSubstr("experiment.params.max_new_tokens is 8 there and 9 here"));
  EXPECT_THAT(refused(changed("float16,float32", "float16")), HasSubstr("experiment.params.dtype"));
  EXPECT_THAT(refused(changed("1", "2")), HasSubstr("environment.n_threads is 1 there and 2 here"));
  EXPECT_THAT(refused(run({"--model", "toy-mistral"})), HasSubstr("model."));
  EXPECT_THAT(refused(run({"--shard", "0/2"})), HasSubstr("experiment.shard is not there"));
  // The same prompts by number, but others in the file.
  Json report = read_report(path("other"));
  report["data"]["sha256"] = "feed";
  write_text_file_atomically(path("other") / kReportFile, report.dump());
  EXPECT_THAT(refused(run()), HasSubstr("data.sha256 is \"feed\" there"));
  report["data"] = Json();
  report["experiment"] = "nonsense";
  write_text_file_atomically(path("other") / kReportFile, report.dump());
  EXPECT_THAT(refused(run()), HasSubstr("experiment"));
  EXPECT_EQ(kvdiv_run({"run", "--resume"}).code, 2) << "where?";
  EXPECT_EQ(kvdiv_run(with(run(), path("other"), {"--resume", "--overwrite"})).code, 2);
  fs::remove_all(path("other"));  // broken on purpose
}

TEST_F(Resumed, ASecondProcessIsRefused) {
  const fs::path out = path("two");
  std::string prompts;
  for (int i = 0; i < 5000; ++i) prompts += fmt::format("{{\"ids\": [1, {}, {}]}}\n", 259 + i % 250, 259 + i / 250);
  write_text_file_atomically(path("many.jsonl"), prompts);
  const std::vector<std::string> many = short_run(path("many.jsonl"), {"--quiet"});
  Process first(with(many, out));
  for (int i = 0; i < 1200 && size_of_file(out / kRecordsFile) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const char* how : {"--resume", "--overwrite"}) {
    const auto second = kvdiv_run(with(many, out, {how}));
    EXPECT_EQ(second.code, 2);
    EXPECT_THAT(second.err, HasSubstr("another kvdiv is writing there"));
  }
  first.send(SIGINT);
  EXPECT_EQ(first.wait().code, 5);
  EXPECT_GT(size_of_file(out / kRecordsFile), 0u);
}

/// An experiment without pairs is computed again, and what was there must be the same bytes.
TEST_F(Resumed, OtherCommandsComputeAgainAndCompare) {
  const std::vector<std::string> drift{"drift", "--prompts", path("prompts.jsonl").string(), "--limit", "2", "--max-steps", "3", "--quiet"};
  ASSERT_EQ(kvdiv_run(with(drift, path("drift"))).code, 0);
  const std::string text = read_text_file(path("drift") / kRecordsFile);
  Json report = read_report(path("drift"));
  report["complete"] = false;
  write_text_file_atomically(path("drift") / kReportFile, report.dump());
  fs::resize_file(path("drift") / kRecordsFile, text.size() / 2);
  const auto resumed = kvdiv_run(with(drift, path("drift"), {"--resume"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_text_file(path("drift") / kRecordsFile), text);
  report["conditions"] = read_report(path("drift"))["conditions"];
  write_text_file_atomically(path("drift") / kReportFile, report.dump());
  std::string other = text;
  const auto at = other.find("\"l2\":", other.find("\"layer\":1"));
  other[at + 5] = other[at + 5] == '9' ? '8' : '9';
  write_text_file_atomically(path("drift") / kRecordsFile, other);
  const auto differs = kvdiv_run(with(drift, path("drift"), {"--resume"}));
  EXPECT_EQ(differs.code, 4);
  EXPECT_THAT(differs.err, testing::AllOf(HasSubstr("computed again and differs"), HasSubstr("--overwrite")));
}

/// A small tmpfs where the test may mount one (in a namespace of its own, if root or user namespaces allow it).
TEST_F(Resumed, AFullDiskIsAnErrorOfItsOwnAndCanBeGoneOnWith) {
  const fs::path disk = path("disk");
  fs::create_directories(disk);
  if (mount("kvdiv-test", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here: " << std::strerror(errno) << "; records_file_test fills a limited file instead";
  const auto full = kvdiv_run(with(run(), disk / "run"));
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_THAT(full.err, testing::AllOf(HasSubstr("No space left on device"), HasSubstr("--resume")));
  const std::string text = read_text_file(disk / "run" / kRecordsFile);
  EXPECT_TRUE(text.empty() || text.ends_with("}\n")) << "no half of a pair";
  EXPECT_TRUE(read_text_file(path("whole") / kRecordsFile).starts_with(text));
  EXPECT_EQ(mount("kvdiv-test", disk.c_str(), "tmpfs", MS_REMOUNT, "size=4m"), 0);
  const auto resumed = kvdiv_run(with(run(), disk / "run", {"--resume"}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  expect_same_result(path("whole"), disk / "run");
  EXPECT_EQ(umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace kvdiv::test
