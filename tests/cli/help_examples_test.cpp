// The examples at the end of each command's --help do what they say: run as they stand, in a directory of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/command.h"
#include "kvdiv/cli/app.h"
#include "process.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// Models that are aliases of real ones: too large to be here.
bool needs_a_download(const std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), "--model");
  return at != words.end() && !std::next(at)->starts_with("toy-");
}

/// "results/shard-*" as a shell would have it.
std::vector<std::string> with_globs(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    if (!word.ends_with("*")) {
      out.push_back(word);
      continue;
    }
    const fs::path begin = word.substr(0, word.size() - 1);
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(begin.parent_path()))
      if (entry.path().string().starts_with(begin.string())) found.insert(entry.path().string());
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

/// Each in a directory of its own, with what the examples read.
class HelpExamples : public testing::TestWithParam<std::string> {
 protected:
  HelpExamples() : before_(fs::current_path()) {
    fs::current_path(cwd_.path());
    fs::create_symlink(root() / "configs", "configs");
  }
  ~HelpExamples() override { fs::current_path(before_); }

  /// A run and its two shards, once for all examples: as many pairs and steps as the shipped contracts ask for.
  static void SetUpTestSuite() {
    made_ = std::make_unique<TempDir>();
    for (const char* shard : {"0/1", "0/2", "1/2"}) {
      const auto made = kvdiv_run({"run", "--limit", "8", "--max-new-tokens", "16", "--seeds", "1", "--quiet", "--shard", shard, "--output", made_as(shard)});
      ASSERT_EQ(made.code, 0) << made.err;
    }
  }
  static void TearDownTestSuite() { made_.reset(); }

  static std::string made_as(std::string shard) {
    shard[1] = '-';
    return (made_->path() / shard).string();
  }

  /// The results that an example names before --output; shards of one run for a merge.
  static void put_what_is_read(const std::vector<std::string>& words) {
    std::vector<std::string> read;
    for (std::size_t i = 1; i < words.size() && words[i] != "--output"; ++i)
      if (words[i].starts_with("results/")) read.push_back(words[i]);
    if (read.empty()) return;
    if (read.front().ends_with("*")) read = {"results/shard-0", "results/shard-1"};
    fs::create_directories("results");
    for (std::size_t i = 0; i < read.size(); ++i) fs::copy(made_as(words.front() != "merge" ? "0/1" : i == 0 ? "0/2" : "1/2"), read[i]);
  }

 private:
  static inline std::unique_ptr<TempDir> made_;
  TempDir cwd_;
  fs::path before_;
};

TEST_P(HelpExamples, RunAsTheyStand) {
  std::vector<std::string> words = split(GetParam(), ' ');
  ASSERT_EQ(words.front(), "kvdiv");
  words.erase(words.begin());
  put_what_is_read(words);
  const auto result = kvdiv_run(with_globs(words), {"HF_HUB_CACHE=/nonexistent"});
  if (needs_a_download(words)) {
    EXPECT_EQ(result.code, 3) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("hf download "), HasSubstr("toy-")));
    EXPECT_FALSE(fs::exists("results")) << "nothing is written for a model that is not there";
  } else {
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    EXPECT_NE(result.out, "");
  }
}

std::vector<std::string> all_examples() {
  std::vector<std::string> all;
  for (const Command& command : commands()) all.insert(all.end(), command.examples.begin(), command.examples.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, HelpExamples, testing::ValuesIn(all_examples()),
                         [](const auto& info) { return fmt::format("{}_{}", split(info.param, ' ').at(1), info.index); });

/// The help's last lines are the examples, two or more, and nothing else.
TEST(Help, EndsWithExamples) {
  for (const Command& command : commands()) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_command_line({command.name, "--help"}), 0) << command.name;
    const std::string help = testing::internal::GetCapturedStdout();
    std::string end = "Examples:\n";
    for (const std::string& example : command.examples) end += "  " + example + "\n";
    EXPECT_THAT(help, testing::EndsWith(end)) << command.name;
    EXPECT_GE(command.examples.size(), 2u) << command.name;
  }
}

}  // namespace
}  // namespace kvdiv::test
