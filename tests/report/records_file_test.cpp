// What an interruption can leave in records.jsonl, and how it is gone on with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/pair_reader.h"
#include "kvdiv/report/records_file.h"
#include "kvdiv/report/result_directory.h"
#include "support/temp_dir.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

std::string line_of(std::string_view type, const Json& record) {
  Json line = {{"type", type}};
  line.update(record);
  return line.dump() + "\n";
}

/// Two steps and their pair record.
std::string pair_text(const std::string& id) {
  StepRecord step;
  step.pair_id = id;
  PairRecord pair;
  pair.pair_id = id;
  pair.condition = "float16/torch/greedy";
  std::string text;
  for (step.step = 0; step.step < 2; ++step.step) text += line_of("step", to_json_value(step));
  return text + line_of("pair", to_json_value(pair));
}

class Records : public testing::Test {
 protected:
  Records() { dir_.holds_broken_results(); }
  void put(const std::string& text) { write_text_file_atomically(file_, text); }
  std::string text() const { return read_text_file(file_); }
  const std::string a_ = pair_text("a"), b_ = pair_text("b"), c_ = pair_text("c");
  TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / kRecordsFile;
};

TEST_F(Records, ThatAreThereAreTakenInOrderAndNotWrittenAgain) {
  put(a_ + b_);
  {
    RecordsFile records(file_);
    const auto first = records.take_pair("a");
    ASSERT_TRUE(first);
    EXPECT_EQ(first->steps.size(), 2u);
    EXPECT_EQ(first->steps[1].step, 1);
    EXPECT_EQ(first->pair.pair_id, "a");
    ASSERT_TRUE(records.take_pair("b"));
    EXPECT_FALSE(records.take_pair("c"));
    EXPECT_EQ(records.cut_note(), "");
    records.commit(c_);
  }
  EXPECT_EQ(text(), a_ + b_ + c_);
}

/// Cut off at every byte: whatever is left, going on gives the whole again.
TEST_F(Records, TornAnywhereEndAsIfNothingHadHappened) {
  const std::string whole = a_ + b_;
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    put(whole.substr(0, n));
    {
      RecordsFile records(file_);
      for (const auto& [id, lines] : {std::pair{"a", a_}, std::pair{"b", b_}})
        if (!records.take_pair(id)) records.commit(lines);
      EXPECT_EQ(records.n_taken(), n < a_.size() ? 0 : n < whole.size() ? 1 : 2) << n;
    }
    ASSERT_EQ(text(), whole) << "cut at byte " << n;
  }
}

/// A power cut can leave blocks of zero bytes, or of an older file, where the end should be.
TEST_F(Records, ADamagedEndIsDroppedWithANote) {
  for (const std::string& end : {std::string(4096, '\0'), b_.substr(0, 20) + std::string(100, '\0') + "\n" + c_, std::string("{\"type\":\"pair\"\n"),
                                 line_of("step", {{"pair_id", 7}}), c_.substr(c_.find('\n') + 1).substr(0, 10) + "\n"}) {
    put(a_ + end);
    RecordsFile records(file_);
    ASSERT_TRUE(records.take_pair("a"));
    EXPECT_FALSE(records.take_pair("b"));
    EXPECT_THAT(records.cut_note(), HasSubstr("line 4"));
    EXPECT_EQ(text(), a_);
    records.commit(b_);
    EXPECT_EQ(text(), a_ + b_);
  }
}

TEST_F(Records, OfAnotherRunAreRefused) {
  put(a_ + b_);
  RecordsFile records(file_);
  try {
    records.take_pair("b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    EXPECT_THAT(error.what(), HasSubstr("line 3: pair a where this run has b"));
  }
  EXPECT_EQ(text(), a_ + b_);
}

/// What is computed again is held against what is there: equal bytes stay, a torn end is completed, other bits are an error.
TEST_F(Records, ComputedAgainMustBeTheSameBytes) {
  put(a_ + b_.substr(0, 30));
  {
    RecordsFile records(file_);
    records.commit(a_);
    EXPECT_EQ(text(), a_ + b_.substr(0, 30)) << "nothing was written";
    records.commit(b_);
    records.commit(c_);
  }
  EXPECT_EQ(text(), a_ + b_ + c_);
  RecordsFile records(file_);
  records.commit(a_);
  std::string other = b_;
  other.replace(other.find("\"step\":1"), 8, "\"step\":7");
  try {
    records.commit(other);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_measurement);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("line 5"), HasSubstr("--overwrite")));
  }
  EXPECT_EQ(text(), a_ + b_ + c_);
}

TEST_F(Records, HaveOneWriter) {
  const RecordsFile first(file_);
  try {
    const RecordsFile second(file_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("another kvdiv is writing there"));
  }
}

/// A limit on the size of files stands for a full disk: the write fails in the middle of a pair.
TEST_F(Records, AFullDiskLosesThePairInHandAlone) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{a_.size() + 50, a_.size() + 50};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      RecordsFile records(file_);
      records.commit(a_);
      records.commit(b_);
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("--resume") != std::string::npos ? static_cast<int>(error.kind()) : 99);
    }
    _exit(98);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::unreadable));
  EXPECT_EQ(text(), a_) << "half of the second pair is gone again";
}

TEST_F(Records, WithoutAReportAreNotGoneOnWith) {
  put(a_);
  EXPECT_THROW(ResultDirectory(dir_.path(), Existing::resume), Error);
  EXPECT_EQ(text(), a_);
  put("");
  EXPECT_TRUE(ResultDirectory(dir_.path(), Existing::resume).previous().is_null()) << "killed before the first report: a new run";
}

/// Opening a pipe would wait for a writer for ever.
TEST_F(Records, ThatAreAPipeAreRefused) {
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THROW(PairReader{file_}, Error);
  EXPECT_THROW(RecordsFile{file_}, Error);
}

TEST_F(Records, AreReadPairByPairWithTheirText) {
  put(a_ + b_ + "{");
  PairReader reader(file_);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.text(), a_);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.text(), b_);
  EXPECT_EQ(reader.offset(), std::ssize(a_ + b_));
  EXPECT_EQ(reader.n_lines(), 6);
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.problem(), "line 7: no newline behind it");
}

}  // namespace
}  // namespace kvdiv::test
