#include "kvdiv/report/csv.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/result_directory.h"
#include "record_lines.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
using Row = std::vector<std::pair<std::string, std::string>>;  // column and field, as written

std::string quoted(std::string text) {
  std::erase(text, '\0');
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += '"';
  }
  return out + '"';
}

std::string field(const Json& v) {
  if (v.is_null()) return "";
  if (v.is_boolean()) return v.get<bool>() ? "TRUE" : "FALSE";
  if (v.is_string()) return quoted(v.get<std::string>());
  const std::string text = v.dump(-1, ' ', false, Json::error_handler_t::replace);
  return v.is_number() ? text : quoted(text);
}

/// The members of an object, those of objects in it by their path.
void add_members(const Json& object, const std::string& prefix, bool with_lists, Row& row) {
  for (const auto& [key, v] : object.items()) {
    if (v.is_object())
      add_members(v, prefix + key + ".", with_lists, row);
    else if (with_lists || !v.is_array())
      row.emplace_back(prefix + key, field(v));
  }
}

/// A file under another name until everything is in it.
class CsvFile {
 public:
  CsvFile(fs::path path, std::vector<std::string> columns)
      : path_(std::move(path)),
        part_(path_.string() + ".part"),
        columns_(std::move(columns)),
        out_(part_, std::ios::binary) {
    std::string line;
    for (const auto& column : columns_) line += (line.empty() ? "" : ",") + quoted(column);
    put(line);
  }
  ~CsvFile() {
    std::error_code ignored;
    if (!is_done_) fs::remove(part_, ignored);
  }
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;

  /// Fields of columns that the row has not are empty. False for a row with another column.
  bool write(const Row& row) {
    std::string line;
    std::size_t next = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += ',';
      if (next < row.size() && row[next].first == columns_[i]) line += row[next++].second;
    }
    if (next == row.size()) {
      put(line);
      return true;
    }
    return write_by_name(row);
  }

  void finish() {
    out_.close();
    std::error_code error;
    if (out_) fs::rename(part_, path_, error);
    if (!out_ || error)
      fail_unreadable("{}: cannot be written: {}", path_.string(), error ? error.message() : std::strerror(errno));
    is_done_ = true;
  }

 private:
  bool write_by_name(const Row& row) {
    std::map<std::string, std::string> fields(row.begin(), row.end());
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += ',';
      if (const auto it = fields.find(columns_[i]); it != fields.end()) {
        line += it->second;
        fields.erase(it);
      }
    }
    // A null whose other records have an object is in no column.
    if (std::any_of(fields.begin(), fields.end(), [](const auto& f) { return !f.second.empty(); })) return false;
    put(line);
    return true;
  }

  void put(const std::string& line) {
    out_ << line << '\n';
    if (!out_) fail_unreadable("{}: cannot be written: {}", part_.string(), std::strerror(errno));
  }

  fs::path path_, part_;
  std::vector<std::string> columns_;
  std::ofstream out_;
  bool is_done_ = false;
};

/// The names that a table may have: a record's type becomes a file name.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

std::vector<std::string> columns_of(const Row& row) {
  std::vector<std::string> out;
  for (const auto& [column, ignored] : row) out.push_back(column);
  return out;
}

using Columns = std::map<std::string, std::vector<std::string>>;  // of each type of record
using RowVisitor = std::function<void(const std::string& type, const Row& row)>;

enum class Pass { columns, rows };

/// Every record as a row. Steps are by far the most: they do not go through the parser.
void for_each_row(const fs::path& records_file, Pass pass, const RowVisitor& visit) {
  const auto visit_json = [&](const std::string& type, const Json& record) {
    Row row;
    add_members(record, "", true, row);
    visit(type, row);
  };
  bool has_steps = false;
  RecordHandlers handlers;
  handlers.step = [&](const StepRecord& step) {  // one is like the other
    if (pass == Pass::rows || !has_steps) visit_json(std::string(StepRecord::type), to_json_value(step));
    has_steps = true;
  };
  handlers.pair = [&](const PairRecord& pair) { visit_json(std::string(PairRecord::type), to_json_value(pair)); };
  handlers.other = [&](std::string_view type, std::string_view line) {
    Json record = parse_json(line, records_file.string() + ": a record of type " + short_name(std::string(type)));
    record.erase("type");
    visit_json(std::string(type), record);
  };
  for_each_line(records_file, handlers);
}

/// A null where other records have an object has that object's columns, so all records are seen before the first is
/// written.
Columns find_columns(const fs::path& records_file) {
  Columns out;
  std::map<std::string, std::set<std::string>> known;
  for_each_row(records_file, Pass::columns, [&](const std::string& type, const Row& row) {
    if (!is_plain_name(type))
      fail_unreadable("{}: a record of type {}: not a name of a table", records_file.string(), short_name(type));
    for (const auto& [column, ignored] : row)
      if (known[type].insert(column).second) out[type].push_back(column);
  });
  for (auto& [type, columns] : out) {
    const auto has_members = [&](const std::string& column) {
      const auto next = known[type].lower_bound(column + ".");
      return next != known[type].end() && next->starts_with(column + ".");
    };
    std::erase_if(columns, has_members);
  }
  return out;
}

void write_conditions(const Json& report, const fs::path& directory) {
  const auto conditions = report.find("conditions");
  if (conditions == report.end() || !conditions->is_array() || conditions->empty()) return;
  std::vector<Row> rows;
  std::vector<std::string> columns;
  std::set<std::string> known;
  for (const Json& c : *conditions) {
    if (!c.is_object()) continue;
    add_members(c, "", false, rows.emplace_back());
    for (const std::string& column : columns_of(rows.back()))
      if (known.insert(column).second) columns.push_back(column);
  }
  CsvFile file(directory / "conditions.csv", columns);
  for (const Row& row : rows) file.write(row);
  file.finish();
}

}  // namespace

void write_csv(const fs::path& result, const fs::path& directory) {
  const Json report = read_report(result);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_unreadable("{}: cannot be made: {}", directory.string(), error.message());
  if (report.is_object()) write_conditions(report, directory);
  const fs::path records = result / kRecordsFile;
  if (!fs::is_directory(result, error) || !fs::exists(records, error)) return;
  std::map<std::string, std::unique_ptr<CsvFile>> files;
  for (auto& [type, columns] : find_columns(records))
    files[type] = std::make_unique<CsvFile>(directory / (type + ".csv"), columns);
  for_each_row(records, Pass::rows, [&](const std::string& type, const Row& row) {
    if (const auto it = files.find(type); it == files.end() || !it->second->write(row))
      fail_unreadable("{}: the records changed while they were read", records.string());
  });
  for (auto& [type, file] : files) file->finish();
}

}  // namespace kvdiv
