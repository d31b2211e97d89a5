// Tables that pandas and R read: one file a type of record.
#include "kvdiv/report/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>

#include "kvdiv/base/error.h"
#include "kvdiv/base/records.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/result_directory.h"
#include "support/run_report.h"
#include "support/temp_dir.h"

namespace kvdiv::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string line_of(std::string_view type, const Json& record) {
  Json line = {{"type", type}};
  line.update(record);
  return line.dump() + "\n";
}

class Csv : public testing::Test {
 protected:
  Csv() {
    dir_.holds_broken_results();
    std::filesystem::create_directories(result_);
    write_text_file_atomically(result_ / kReportFile, sample_report().dump());
  }
  void write(const std::string& records) const {
    write_text_file_atomically(result_ / kRecordsFile, records);
    write_csv(result_, out_);
  }
  std::vector<std::string> lines(const std::string& table) const {
    auto out = split(read_text_file(out_ / (table + ".csv")), '\n');
    EXPECT_EQ(out.back(), "") << "the last line is ended";
    out.pop_back();
    return out;
  }
  TempDir dir_;
  const std::filesystem::path result_ = dir_.path() / "result", out_ = dir_.path() / "tables";
};

TEST_F(Csv, HasOneTableForEachTypeOfRecord) {
  StepRecord step;
  step.pair_id = "a";
  step.kl_on_off_nats = 1.25e-7;
  step.js_nats = std::numeric_limits<double>::quiet_NaN();
  step.same_prefix = false;
  PairRecord pair;
  pair.pair_id = "a";
  write(line_of("step", to_json_value(step)) + line_of("pair", to_json_value(pair)) + line_of("head", {{"layer", 1}, {"head", 2}}));
  ASSERT_EQ(lines("step").size(), 2u);
  EXPECT_THAT(lines("step")[0], StartsWith("pair_id,clock,step,same_prefix,"));
  EXPECT_EQ(lines("step")[1], "a,both,0,FALSE,0,0,1.25e-07,0.0,,0.0,FALSE,FALSE,0.0,0.0,FALSE,FALSE,0");
  EXPECT_THAT(lines("head"), ElementsAre("layer,head", "1,2"));
  EXPECT_EQ(lines("pair").size(), 2u);
  EXPECT_THAT(lines("conditions")[0], HasSubstr("same_prefix.kl_on_off_nats.mean"));
}

TEST_F(Csv, QuotesTextsThatHoldWhatEndsAField) {
  PairRecord pair;
  pair.pair_id = "a,b";
  pair.prompt_id = "say \"no\"";
  pair.condition = std::string("zero\0byte", 9);
  pair.text_on = "two\nlines";
  pair.text_off = "";
  pair.tokens_on = {1, 2};
  write(line_of("pair", to_json_value(pair)));
  const std::string text = read_text_file(out_ / "pair.csv");
  EXPECT_THAT(text, HasSubstr("\n\"a,b\",zerobyte,\"say \"\"no\"\"\","));
  EXPECT_THAT(text, HasSubstr(",\"[1,2]\",[],\"two\nlines\",\"\","));
}

TEST_F(Csv, GivesAnObjectItsColumnsAlsoWhereItIsNull) {
  PairRecord a, b;
  a.pair_id = "a";
  b.pair_id = "b";
  b.nonfinite = NonfiniteStop{Arm::off, 3, 2, 1.5};
  write(line_of("pair", to_json_value(a)) + line_of("pair", to_json_value(b)));
  const auto all = lines("pair");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0], HasSubstr("nonfinite.arm,nonfinite.step"));
  EXPECT_THAT(all[0], Not(HasSubstr("nonfinite,")));
  const std::string null_columns = ",,,,";
  EXPECT_EQ(std::count(all[1].begin(), all[1].end(), ','), std::count(all[0].begin(), all[0].end(), ','));
  EXPECT_THAT(all[1], HasSubstr(null_columns));
  EXPECT_THAT(all[2], HasSubstr("off,3,2,1.5"));
}

TEST_F(Csv, OfTypesThatAreNoFileNamesIsRefused) {
  EXPECT_THROW(write("{\"type\":\"../up\"}\n"), Error);
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "up.csv"));
  EXPECT_THROW(write("{\"type\":\"layer\",\n"), Error);
}

TEST_F(Csv, ThatCannotBeFinishedLeavesNothingHalfWritten) {
  std::filesystem::create_directories(out_ / "step.csv" / "in-the-way");
  EXPECT_THROW(write(line_of("step", to_json_value(StepRecord())) + line_of("head", {{"layer", 1}})), Error);
  for (const auto& entry : std::filesystem::directory_iterator(out_)) EXPECT_NE(entry.path().extension(), ".part") << entry.path();
}

TEST_F(Csv, OfAResultWithoutRecordsHasItsConditions) {
  write_csv(result_, out_);
  EXPECT_EQ(lines("conditions").size(), 2u);
  EXPECT_THROW(write_csv(dir_.path() / "nothing", out_), Error);
}

}  // namespace
}  // namespace kvdiv::test
