// Results on disk and for people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/environment.h"
#include "kvdiv/report/records_reader.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/result_directory.h"
#include "kvdiv/report/table.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Dir {
 public:
  Dir() : path_(fs::temp_directory_path() / ("kvdiv-report-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  ~Dir() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(RecordsReader, DropsATornLastLineAndNamesABadOne) {
  const Dir dir;
  fs::create_directories(dir.path());
  const auto read = [&](const std::string& text) {
    write_text_file_atomically(dir.path() / kRecordsFile, text);
    std::vector<std::string> types;
    for_each_record(dir.path(), [&](const std::string& type, const Json&) { types.push_back(type); });
    return types;
  };
  EXPECT_EQ(read("{\"type\":\"step\"}\n{\"type\":\"pair\"}\n"), (std::vector<std::string>{"step", "pair"}));
  EXPECT_EQ(read("{\"type\":\"step\"}\n{\"type\":\"pa"), (std::vector<std::string>{"step"}));
  EXPECT_EQ(read(""), (std::vector<std::string>{}));
  for (const char* bad : {"{\"type\":\"step\"}\nnonsense\n{\"type\":\"pair\"}\n", "[1]\n", "{\"step\":1}\n", "{\"type\":3}\n"}) {
    try {
      read(bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THAT(error.what(), HasSubstr("line "));
    }
  }
  fs::remove(dir.path() / kRecordsFile);
  EXPECT_THROW(for_each_record(dir.path(), [](const std::string&, const Json&) {}), Error);
}

TEST(ResultDirectory, WritesPairByPair) {
  const Dir dir;
  {
    ResultDirectory result(dir.path(), Existing::refuse);
    StepRecord step;
    step.pair_id = "a";
    step.kl_on_off_nats = std::numeric_limits<double>::infinity();
    step.js_nats = 0.1;
    result.append("step", step);
    EXPECT_EQ(read_text_file(dir.path() / kRecordsFile), "") << "nothing before the commit";
    PairRecord pair;
    pair.pair_id = "a";
    pair.text_on = "half a \xE2\x82";  // generated text may end inside a character
    result.append("pair", pair);
    result.commit();
  }
  const std::string text = read_text_file(dir.path() / kRecordsFile);
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 3u);
  const Json step = Json::parse(lines[0]), pair = Json::parse(lines[1]);
  EXPECT_EQ(step.begin().key(), "type");
  EXPECT_TRUE(step["kl_on_off_nats"].is_null()) << "a non-finite number is null";
  EXPECT_EQ(step["js_nats"].get<double>(), 0.1) << "numbers round-trip";
  EXPECT_EQ(pair["text_on"], "half a \xEF\xBF\xBD");
  EXPECT_THROW(ResultDirectory(dir.path(), Existing::refuse), Error);
  const ResultDirectory replaced(dir.path(), Existing::replace);
  EXPECT_EQ(read_text_file(dir.path() / kRecordsFile), "");
}

TEST(ResultDirectory, LeavesOtherFilesAlone) {
  const Dir dir;
  fs::create_directories(dir.path());
  write_text_file_atomically(dir.path() / "notes.txt", "mine");
  ResultDirectory result(dir.path(), Existing::replace);
  result.write_report({{"schema", "kvdiv/report/1"}});
  EXPECT_EQ(read_text_file(dir.path() / "notes.txt"), "mine");
  EXPECT_EQ(read_report(dir.path())["schema"], "kvdiv/report/1");
  write_text_file_atomically(dir.path() / kReportFile, "{\"schema\": \"other\"}");
  EXPECT_THROW(read_report(dir.path()), Error);
}

TEST(Table, LinesUpByCharacters) {
  TextTable table({"", "max |Δlogit|", "n"});
  table.row({"a‖b", "1", "1,234"});
  table.row({"long label", "0.5", "7"});
  std::set<std::size_t> widths;
  for (const std::string& line : split(table.str(0), '\n'))
    if (!line.empty()) widths.insert(display_width(line));
  EXPECT_EQ(widths.size(), 1u) << table.str(0);
}

TEST(Render, NumbersForPeople) {
  EXPECT_EQ(short_number(1.234e-6), "1.2e-06");
  EXPECT_EQ(short_number(0.0), "0");
  EXPECT_EQ(short_number(12.345), "12.3");
  EXPECT_EQ(short_number(nullptr), "–");
  EXPECT_EQ(short_number(123456.0), "1.2e+05");
}

TEST(Render, AnEmptyOrOldReportIsNotACrash) {
  EXPECT_THAT(render_text(Json::object()), HasSubstr("INCOMPLETE"));
  EXPECT_THAT(render_text(Json{{"complete", true}, {"conditions", Json::array({Json::object()})}, {"warnings", nullptr}}), HasSubstr("steps"));
  EXPECT_THAT(render_text(Json{{"complete", true}, {"controls", {{"x", false}, {"n", {{"expected", 1}, {"computed", 2}}}}}}), HasSubstr("FAILED: x, n"));
}

TEST(Environment, HasNoHostAndNoTime) {
  const Json env = describe_environment(2);
  EXPECT_EQ(env["n_threads"], 2);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string name(host);
  if (name.size() > 4) {
    EXPECT_THAT(env.dump(), testing::Not(HasSubstr(name)));
  }
  EXPECT_EQ(utc_stamp().size(), 20u);
}

/// A bug's place and what it looks like stand under the verdict; other verdicts have neither.
TEST(Render, SaysWhereABugIs) {
  Json report = {{"complete", true}, {"experiment", {{"name", "run"}}}, {"verdict", {{"kind", "bug"}, {"sentence", "It stays."}}}};
  EXPECT_EQ(render_text(report).find("where:"), std::string::npos);
  report["verdict"]["where"] = {{"step", 1}, {"layer", 2}, {"operation", "query_rotary"}, {"arm", "on"}};
  report["verdict"]["nearest"] = nullptr;
  EXPECT_THAT(render_text(report), HasSubstr("where: step 1, layer 2 (0: embeddings), query_rotary, arm ON\n"));
  report["verdict"]["nearest"] = {{"symptom", "rotary_off_by_one"},
                                  {"evidence", "e"},
                                  {"distance_nats", 0.0},
                                  {"compared_to", {{{"symptom", "rotary_off_by_one"}, {"distance_nats", 0.0}}, {{"symptom", "healthy"}, {"distance_nats", 0.25}}}}};
  EXPECT_THAT(render_text(report), testing::AllOf(HasSubstr("nearest: rotary_off_by_one"), HasSubstr("rotary_off_by_one 0, healthy 0.25")));
}

}  // namespace
}  // namespace kvdiv
