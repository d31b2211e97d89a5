// The schemas of results say what the program writes: the same keys as the structs, and what is wrong is found, with its place.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "kvdiv/base/records.h"
#include "kvdiv/io/files.h"
#include "support/schema.h"
#include "support/temp_dir.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kRoot = KVDIV_TEST_ROOT;
const fs::path kOlder = kRoot / "tests" / "corpus" / "results" / "older";

Json schema(const std::string& name) { return read_json_file(kRoot / "schemas" / name); }

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

template <Described R>
void expect_keys(const Json& records) {
  const Json& definition = records["definitions"][std::string(R::type)];
  std::set<std::string> keys{"type"};
  for (const std::string& key : field_keys<R>()) keys.insert(key);
  EXPECT_EQ(keys_of(definition["properties"]), keys) << R::type;
  EXPECT_EQ(definition["additionalProperties"], false) << R::type;
  for (const Json& required : definition["required"]) EXPECT_TRUE(keys.contains(required.get<std::string>())) << required;
}

/// A new key of a record is a line in the schema; it is not required, for older results lack it.
TEST(Schemas, RecordsHaveTheKeysOfTheirStructs) {
  const Json records = schema("records.schema.json");
  expect_keys<PairRecord>(records);
  expect_keys<StepRecord>(records);
  expect_keys<LayerRecord>(records);
  expect_keys<HeadRecord>(records);
  expect_keys<PatchRecord>(records);
}

/// An object whose keys are listed is closed, but for the verdict, which each experiment may add to.
void expect_closed(const Json& node, const std::string& where) {
  if (node.is_array())
    for (const Json& item : node) expect_closed(item, where);
  if (!node.is_object()) return;
  const bool lists_keys = node.contains("properties") && node.contains("required") && node.value("type", Json()) == "object";
  if (lists_keys && where != "" && where != "/definitions/verdict") {
    EXPECT_EQ(node.value("additionalProperties", Json()), false) << where;
  }
  for (const auto& [key, value] : node.items()) expect_closed(value, where + "/" + key);
}

TEST(Schemas, AreClosed) {
  EXPECT_EQ(schema("report.schema.json")["additionalProperties"], false);
  for (const char* name : {"report.schema.json", "records.schema.json"}) {
    EXPECT_EQ(schema(name)["$schema"], "http://json-schema.org/draft-07/schema#");
    expect_closed(schema(name), "");
  }
}

TEST(Schemas, AnOlderResultHolds) { EXPECT_THAT(schema_problems(kOlder), IsEmpty()); }

class Planted : public testing::Test {
 protected:
  Planted() { dir_.holds_broken_results(); }
  /// What is said of the older report after `change`.
  std::vector<std::string> of_report(const std::function<void(Json&)>& change) {
    Json report = read_json_file(kOlder / "report.json");
    change(report);
    std::ofstream(dir_.path() / "report.json") << report.dump(2);
    return schema_problems(dir_.path());
  }
  /// The same of its records, after `change` of one line (from 1).
  std::vector<std::string> of_line(std::size_t number, const std::function<void(std::string&)>& change) {
    auto lines = split(read_text_file(kOlder / "records.jsonl"), '\n');
    change(lines.at(number - 1));
    std::ofstream out(dir_.path() / "records.jsonl");
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) out << lines[i] << "\n";
    out.close();
    return schema_problems(dir_.path());
  }
  std::vector<std::string> of_record(std::size_t number, const std::function<void(Json&)>& change) {
    return of_line(number, [&](std::string& line) {
      Json record = Json::parse(line);
      change(record);
      line = record.dump();
    });
  }
  TempDir dir_;
};

constexpr std::size_t kPairLine = 9;  ///< of the older records, behind eight steps

TEST_F(Planted, AWrongKeyOfAReportIsReported) {
  EXPECT_THAT(of_report([](Json& r) { r["extra"] = 1; }), ElementsAre(AllOf(HasSubstr("report.json: "), HasSubstr("'extra'"))));
  EXPECT_THAT(of_report([](Json& r) { r["conditions"][1]["same_prefix"]["kl"] = 1; }), ElementsAre(AllOf(HasSubstr(": /conditions/1/same_prefix: "), HasSubstr("'kl'"))));
  EXPECT_THAT(of_report([](Json& r) { r["conditions"][0]["mcnemar"]["exact"]["p"] = 2; }), ElementsAre(HasSubstr(": /conditions/0/mcnemar/exact/p: ")));
  EXPECT_THAT(of_report([](Json& r) { r["conditions"][0]["free_running"]["js_nats"].erase("mean"); }), ElementsAre(AllOf(HasSubstr("/free_running/js_nats: "), HasSubstr("'mean'"))));
  EXPECT_THAT(of_report([](Json& r) { r["controls"]["on_off_equal"] = true; }), ElementsAre(AllOf(HasSubstr(": /controls: "), HasSubstr("'on_off_equal'"))));
  EXPECT_THAT(of_report([](Json& r) { r["verdict"]["kind"] = "good"; }), ElementsAre(HasSubstr(": /verdict/kind: ")));
  EXPECT_THAT(of_report([](Json& r) { r["verdict"] = nullptr; }), ElementsAre(HasSubstr(": /verdict: "))) << "complete, but without a verdict";
  EXPECT_THAT(of_report([](Json& r) { r["matrix"] = Json::array(); }), ElementsAre(HasSubstr("'matrix'"))) << "a key of selftest";
  EXPECT_THAT(of_report([](Json& r) { r["warnings"][0]["code"] = "Not A Code"; }), ElementsAre(HasSubstr(": /warnings/0/code: ")));
  EXPECT_THAT(of_report([](Json& r) { r["model"]["cast"]["overflow"] = -1; }), ElementsAre(HasSubstr(": /model/cast/overflow: ")));
  EXPECT_THAT(of_report([](Json& r) { r["experiment"]["name"] = "runn"; }), ElementsAre(HasSubstr(": /experiment/name: ")));
}

TEST_F(Planted, AWrongRecordIsReportedWithItsLine) {
  EXPECT_THAT(of_record(4, [](Json& r) { r["typo"] = 1; }), ElementsAre(AllOf(HasSubstr("records.jsonl: line 4: "), HasSubstr("'typo'"))));
  EXPECT_THAT(of_record(4, [](Json& r) { r.erase("tie_on"); }), ElementsAre(AllOf(HasSubstr("line 4: "), HasSubstr("'tie_on'"))));
  EXPECT_THAT(of_record(4, [](Json& r) { r["step"] = -1; }), ElementsAre(HasSubstr("line 4: /step: ")));
  EXPECT_THAT(of_record(4, [](Json& r) { r["type"] = "stepp"; }), ElementsAre(HasSubstr("line 4: /type: ")));
  EXPECT_THAT(of_record(kPairLine, [](Json& r) { r["tokens_on"][1] = 1.5; }), ElementsAre(HasSubstr("line 9: /tokens_on/1: ")));
  EXPECT_THAT(of_record(kPairLine, [](Json& r) { r["prompt_sha256"] = "xyz"; }), ElementsAre(HasSubstr("line 9: /prompt_sha256: ")));
  EXPECT_THAT(of_record(kPairLine, [](Json& r) { r["finish_on"] = "eof"; }), ElementsAre(HasSubstr("line 9: /finish_on: ")));
  EXPECT_THAT(of_line(4, [](std::string& line) { line = R"({"type":"step","kl_on_off_nats":NaN})"; }), ElementsAre(AllOf(HasSubstr("line 4: "), HasSubstr("not JSON"))));
  EXPECT_THAT(of_line(4, [](std::string& line) { line.insert(1, R"("step":1,)"); }), ElementsAre(HasSubstr("first key")));
  const std::string other = split(read_text_file(kOlder / "records.jsonl"), '\n').at(2 * kPairLine - 1);
  EXPECT_THAT(of_line(kPairLine, [&](std::string& line) { line = other; }), ElementsAre(AllOf(HasSubstr("line 18: "), HasSubstr("twice"))));
}

/// Readers drop it, so it is no fault of a result.
TEST_F(Planted, ATornLastLineIsNone) {
  std::ofstream(dir_.path() / "records.jsonl") << read_text_file(kOlder / "records.jsonl") << R"({"type":"step","pair_)";
  EXPECT_THAT(schema_problems(dir_.path()), IsEmpty());
}

void write_broken_result() {
  const TempDir dir;
  fs::create_directories(dir.path() / "a" / "b");
  std::ofstream(dir.path() / "a" / "b" / "report.json") << "{}";
}

/// So that every result that any test writes is checked.
TEST(Schemas, ADirectoryOfATestIsCheckedWhenItGoes) { EXPECT_NONFATAL_FAILURE(write_broken_result(), "report.json"); }

}  // namespace
}  // namespace kvdiv::test
