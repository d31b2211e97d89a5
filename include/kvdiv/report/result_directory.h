#pragma once
// A result on disk: records.jsonl grows line by line and is durable pair by pair; report.json is replaced whole.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"
#include "kvdiv/report/records_file.h"

namespace kvdiv {

inline constexpr const char* kReportFile = "report.json";
inline constexpr const char* kRecordsFile = "records.jsonl";

/// What is to happen to a result that is there: nothing (it is refused), or it is replaced, or continued.
enum class Existing { refuse, replace, resume };

class ResultDirectory {
 public:
  /// Makes the directory (and its parents) and opens its files, so that a path that cannot be written fails before the
  /// first measurement, and no second process writes there. Anything else in the directory is left alone. Throws
  /// Error{usage} for an existing result that is not to be touched or that another process is writing, Error{unreadable}
  /// for the file system's no, and for records without a report, which nobody can continue.
  ResultDirectory(std::filesystem::path path, Existing existing);
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The report of the run that is continued; null if there is none.
  const Json& previous() const { return previous_; }
  RecordsFile& records() { return *records_; }

  /// Adds a record to the pair in hand; nothing reaches the file before commit().
  template <Described R>
  void append(std::string_view type, const R& record) {
    append_line(type, to_json_value(record));
  }
  void append_line(std::string_view type, const Json& record);
  /// Lines as they stand in another result.
  void append_text(std::string_view lines) { pending_ += lines; }
  /// Writes the pair in hand in one piece. Throws as RecordsFile::commit does.
  void commit();
  /// Replaces report.json in one step.
  void write_report(const Json& report);

 private:
  std::filesystem::path path_;
  std::unique_ptr<RecordsFile> records_;
  Json previous_;
  std::string pending_;
};

/// report.json of a result directory, or the file itself. Throws Error{unreadable}.
Json read_report(const std::filesystem::path& directory_or_file);

}  // namespace kvdiv
