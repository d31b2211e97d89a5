// What surrounds a run changes nothing of what it measures, and a run changes nothing of what surrounds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kProgram = std::string(KVDIV_TEST_BIN) + "/kvdiv";

/// A shell's exit code; what it says goes to a file.
int shell(const std::string& script, const fs::path& log) {
  const int status = std::system(("( " + script + " ) > '" + log.string() + "' 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string run_words(const fs::path& output) {
  return " run --prompts '" + short_prompts() + "' --max-new-tokens 6 --strategy greedy,top-k --seeds 1 --threads 1 --output '" + output.string() + "'";
}

/// A report without what may change: times, speeds, and words of the command line.
Json lasting(const fs::path& directory) {
  Json report = read_json_file(directory / "report.json");
  for (const char* key : {"created_utc", "argv", "timing"}) report.erase(key);
  for (Json& condition : report["conditions"]) condition.erase("timing");
  return report;
}

class Surroundings : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    plain_ = std::make_unique<TempDir>();
    ASSERT_EQ(shell("'" + kProgram + "'" + run_words(plain_->path() / "r"), plain_->path() / "log"), 0) << read_text_file(plain_->path() / "log");
  }
  static void TearDownTestSuite() { plain_.reset(); }

  /// `before`: shell commands, or a prefix, that make the surroundings; `after`: redirections.
  void expect_same(const std::string& before, const std::string& after = "", const std::string& program = kProgram) {
    const fs::path output = dir_.path() / ("r" + std::to_string(n_++));
    EXPECT_EQ(shell(before + " '" + program + "'" + run_words(output) + " " + after, log_), 0) << before << ": " << read_text_file(log_);
    if (!fs::exists(output / "report.json")) return;
    EXPECT_EQ(read_text_file(output / "records.jsonl"), read_text_file(plain_->path() / "r" / "records.jsonl")) << before << after;
    EXPECT_EQ(without_paths(lasting(output)), without_paths(lasting(plain_->path() / "r"))) << before << after;
  }

  /// Of an installed copy: its data are elsewhere.
  static Json without_paths(Json report) {
    report["model"].erase("path");
    return report;
  }

  static inline std::unique_ptr<TempDir> plain_;
  TempDir dir_;
  fs::path log_ = dir_.path() / "log";
  int n_ = 0;
};

TEST_F(Surroundings, ALocaleWithDecimalCommasChangesNothing) {
  const fs::path locales = dir_.path() / "locales";
  fs::create_directories(locales);
  if (shell("localedef -i de_DE -f UTF-8 '" + (locales / "de_DE.UTF-8").string() + "'", log_) != 0)
    GTEST_SKIP() << "no locale could be made (localedef, of Debian's locales and libc-bin): " << read_text_file(log_);
  const std::string set = "LOCPATH='" + locales.string() + "' LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8";
  ASSERT_EQ(shell(set + " locale decimal_point", log_), 0);
  ASSERT_EQ(read_text_file(log_), ",\n") << "the locale is in force";
  expect_same(set);
}

TEST_F(Surroundings, TimeZoneDirectoryUmaskAndHomeChangeNothing) {
  expect_same("TZ=Pacific/Kiritimati");
  expect_same("cd / &&");
  expect_same("umask 000 &&");
  expect_same("umask 077 &&");
  expect_same("env -u HOME -u TMPDIR -u USER");
  expect_same("HOME=/nonexistent TMPDIR=/nonexistent XDG_CACHE_HOME=/nonexistent");
}

/// A closed descriptor is the number of the next file opened: what is printed must not land in the records.
TEST_F(Surroundings, ClosedAndFullStreams) {
  expect_same("", "< /dev/null");
  expect_same("", "<&-");
  expect_same("", "2>&-");
  expect_same("", "<&- 2>&-");
  for (const char* stdout_of : {"> /dev/full", ">&-"}) {
    const fs::path output = dir_.path() / ("lost" + std::to_string(n_++));
    EXPECT_EQ(shell("'" + kProgram + "'" + run_words(output) + " --quiet " + stdout_of, log_), 3) << stdout_of;
    EXPECT_THAT(read_text_file(log_), HasSubstr("kvdiv: stdout: cannot be written")) << stdout_of;
    EXPECT_EQ(read_json_file(output / "report.json")["complete"], true) << "what was measured is there";
    EXPECT_EQ(shell("'" + kProgram + "' models --json " + stdout_of, log_), 3) << stdout_of;
    EXPECT_EQ(shell("'" + kProgram + "' run --help " + stdout_of, log_), 3) << stdout_of;
  }
}

/// The tree of cmake --install, which nobody may write to. Root is not held back by modes: a read-only mount holds it.
TEST_F(Surroundings, AReadOnlyInstallChangesNothing) {
  const fs::path prefix = dir_.path() / "install", build = fs::path(KVDIV_TEST_BIN).parent_path();
  if (!fs::exists(build / "cmake_install.cmake")) GTEST_SKIP() << build << " is no build tree to be installed";
  ASSERT_EQ(shell("cmake --install '" + build.string() + "' --prefix '" + prefix.string() + "'", log_), 0) << read_text_file(log_);
  const std::string installed = (prefix / "bin" / "kvdiv").string();
  if (::geteuid() == 0) {
    const std::string mounted = "unshare -m sh -c 'mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && ! touch \"$0/x\" 2> /dev/null && exec \"$@\"' '" + prefix.string() + "'";
    if (shell(mounted + " true", log_) != 0) GTEST_SKIP() << "root, and no mount of its own can be had: " << read_text_file(log_);
    expect_same(mounted, "", installed);
  } else {
    ASSERT_EQ(shell("chmod -R a-w '" + prefix.string() + "'", log_), 0);
    expect_same("", "", installed);
    ASSERT_EQ(shell("chmod -R u+w '" + prefix.string() + "'", log_), 0);
  }
}

std::map<std::string, std::string> tree_of(const fs::path& root_dir) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(root_dir))
    tree[fs::relative(entry.path(), root_dir).string()] = entry.is_regular_file() ? read_text_file(entry.path()) : "";
  return tree;
}

/// Where caches, settings and scratch files would go is empty before and after.
TEST_F(Surroundings, NoCommandWritesOutsideItsOutput) {
  const fs::path home = dir_.path() / "home", source = plain_->path() / "r";
  const auto before = tree_of(source);
  const std::string small = " --limit 1 --quiet --output out";
  const std::vector<std::string> commands{"run --max-new-tokens 3" + small,
                                          "drift --max-steps 2" + small,
                                          "falsify --part propagation,flip-kl --max-new-tokens 3" + small,
                                          "boundary '" + source.string() + "' --quiet --output out",
                                          "patch --model toy-mistral --max-steps 2 --step 1 --what kv --positions stored" + small,
                                          "trace --max-steps 2 --step 1 --no-gqa" + small,
                                          "noise --max-steps 2 --what v --size 0.1 --mantissa-bits 3" + small,
                                          "mitigate --max-steps 2 --no-search --remedy invariant" + small,
                                          "shapes --max-rows 4 --operation linear" + small,
                                          "selftest --model toy-llama --dtype float16 --max-steps 4" + small,
                                          "check '" + source.string() + "' --contract '" + (root() / "configs" / "contracts" / "float16.json").string() + "'",
                                          "report '" + source.string() + "'",
                                          "models",
                                          "env",
                                          "run --print-config"};
  for (const std::string& command : commands) {
    fs::remove_all(home);
    fs::create_directories(home / "cwd");
    for (const char* name : {"tmp", "cache", "config"}) fs::create_directories(home / name);
    const std::string h = home.string();
    const int code = shell("cd '" + h + "/cwd' && HOME='" + h + "' TMPDIR='" + h + "/tmp' XDG_CACHE_HOME='" + h + "/cache' XDG_CONFIG_HOME='" + h + "/config' '" + kProgram + "' " + command, log_);
    EXPECT_THAT(code, testing::AnyOf(0, 4)) << command << ": " << read_text_file(log_);
    auto tree = tree_of(home);
    for (const char* name : {"cwd", "tmp", "cache", "config", "cwd/out", "cwd/out/report.json", "cwd/out/records.jsonl"}) tree.erase(name);
    EXPECT_THAT(tree, IsEmpty()) << command;
  }
  EXPECT_EQ(tree_of(source), before) << "what is read is left as it is";
}

}  // namespace
}  // namespace kvdiv::test
