// records.jsonl as an enemy would make it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "io/io_support.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/records_reader.h"
#include "kvdiv/report/result_directory.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class HostileRecords : public testing::Test {
 protected:
  fs::path file() const { return dir_ / kRecordsFile; }
  std::string why() const {
    return refusal([&] { for_each_record(dir_.path(), [](const std::string&, const Json&) {}); });
  }
  TempDir dir_;
};

TEST_F(HostileRecords, WhatIsNoRegularFileIsNamedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(why(), HasSubstr("records.jsonl: is not a regular file"));
  fs::remove(file());
  fs::create_symlink("/dev/zero", file());
  EXPECT_THAT(why(), HasSubstr("records.jsonl: is not a regular file"));
  fs::remove(file());
  fs::create_directory(file());
  EXPECT_THAT(why(), HasSubstr("records.jsonl: is not a regular file"));
  fs::remove(file());
  fs::create_symlink(kRecordsFile, file());
  EXPECT_THAT(why(), HasSubstr("records.jsonl: cannot be read"));
}

TEST_F(HostileRecords, DeepNestingIsRefusedBeforeItIsCopied) {
  write_bytes(file(), "{\"type\":\"layer\",\"layer\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n");
  EXPECT_THAT(why(), AllOf(HasSubstr("line 1"), HasSubstr("more than 64 levels of nesting")));
}

TEST_F(HostileRecords, AKeyTwiceIsRefused) {
  write_bytes(file(), "{\"type\":\"step\",\"type\":\"pair\"}\n");
  EXPECT_THAT(why(), HasSubstr("key 'type' occurs twice"));
}

/// A terabyte without a line end.
TEST_F(HostileRecords, ALineWithoutEndIsRefusedInTime) {
  write_bytes(file(), "");
  std::error_code error;
  fs::resize_file(file(), std::uintmax_t{1} << 40, error);
  if (error) GTEST_SKIP() << "no file of a terabyte on this file system: " << error.message();
  EXPECT_THAT(why(), AllOf(HasSubstr("line 1"), HasSubstr("longer than 67108864 bytes")));
}

/// Pieces of a line are put together, whatever its length has to do with the size of a piece.
TEST_F(HostileRecords, LinesOfEveryLengthAroundAPieceAreWhole) {
  for (const std::size_t n : {65'533u, 65'534u, 65'535u, 65'536u, 65'537u, 131'070u, 131'071u, 131'072u}) {
    const std::string head = "{\"type\":\"step\",\"x\":\"", tail = "\"}";
    const std::string line = head + std::string(n - head.size() - tail.size(), 'x') + tail;
    write_bytes(file(), line + "\n" + line + "\n" + line);
    int n_records = 0;
    for_each_record(dir_.path(), [&](const std::string&, const Json& json) {
      EXPECT_EQ(json.dump().size(), n);
      ++n_records;
    });
    EXPECT_EQ(n_records, 2) << n << ": the torn third is dropped";
  }
}

}  // namespace
}  // namespace kvdiv::test
