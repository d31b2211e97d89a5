// The only user of valijson, whose headers take a while to compile.
#include "support/schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using Plain = nlohmann::json;  // valijson's adapter knows the one with sorted keys

/// Enough to see what is wrong with a file.
constexpr std::size_t kMaxProblems = 5;

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// "<root>", "[\"same_prefix\"]", "[0]" → "/same_prefix/0".
std::string pointer(const std::vector<std::string>& context) {
  std::string out;
  for (const std::string& part : context) {
    if (part == "<root>") continue;
    const auto quotes = part.starts_with("[\"") ? 2u : 1u;
    out += "/" + (part.starts_with("[") ? part.substr(quotes, part.size() - 2 * quotes) : part);
  }
  return out.empty() ? "(root)" : out;
}

class Schema {
 public:
  explicit Schema(const std::string& name) {
    const Plain json = Plain::parse(read(fs::path(KVDIV_TEST_ROOT) / "schemas" / name));
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(valijson::adapters::NlohmannJsonAdapter(json), schema_);
  }
  /// "/step: why", the innermost reason first; empty if the text holds.
  std::string problem(const std::string& text) {
    const Plain json = Plain::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return "(root): not JSON: " + text.substr(0, 80);
    const valijson::adapters::NlohmannJsonAdapter value(json);
    if (validator_.validate(schema_, value, nullptr)) return {};
    valijson::ValidationResults results;  // reasons are gathered only where there are any: a file has thousands of lines
    validator_.validate(schema_, value, &results);
    const auto deepest = std::max_element(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.context.size() < b.context.size(); });
    return deepest == results.end() ? "(root): does not hold" : pointer(deepest->context) + ": " + deepest->description;
  }

 private:
  valijson::Schema schema_;
  valijson::Validator validator_{valijson::Validator::kStrongTypes};
};

void check_report(const fs::path& file, std::vector<std::string>& problems) {
  static Schema schema("report.schema.json");
  if (const std::string why = schema.problem(read(file)); !why.empty()) problems.push_back(file.string() + ": " + why);
}

void check_records(const fs::path& file, std::vector<std::string>& problems) {
  static Schema schema("records.schema.json");
  std::ifstream in(file, std::ios::binary);
  std::size_t number = 0, found = 0;
  std::set<std::string> pairs;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    ++number;
    std::string why = schema.problem(line);
    if (why.empty() && !line.starts_with("{\"type\":\"")) why = "(root): the first key must be type";
    if (why.empty() && line.starts_with("{\"type\":\"pair\"") && !pairs.insert(Plain::parse(line)["pair_id"].get<std::string>()).second)
      why = "/pair_id: occurs twice in the file";
    if (why.empty()) continue;
    if (++found > kMaxProblems) break;
    problems.push_back(file.string() + ": line " + std::to_string(number) + ": " + why);
  }
}

}  // namespace

std::vector<std::string> schema_problems(const fs::path& directory) {
  std::vector<std::string> problems;
  std::error_code gone;  // a test may have removed what is listed here
  for (const auto& entry : fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied, gone)) {
    if (!entry.is_regular_file(gone)) continue;
    if (entry.path().filename() == "report.json") check_report(entry.path(), problems);
    if (entry.path().filename() == "records.jsonl") check_records(entry.path(), problems);
  }
  return problems;
}

void expect_valid_results(const fs::path& directory) {
  for (const std::string& problem : schema_problems(directory)) ADD_FAILURE() << problem;
}

}  // namespace kvdiv::test
