#pragma once
// A result on disk: records.jsonl grows line by line and is durable pair by pair; report.json is replaced whole.
#include <cstdio>
#include <filesystem>
#include <string>

#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"

namespace kvdiv {

inline constexpr const char* kReportFile = "report.json";
inline constexpr const char* kRecordsFile = "records.jsonl";

class ResultDirectory {
 public:
  /// Makes the directory (and its parents) and opens its files, so that a path that cannot be written fails before the
  /// first measurement. An existing result is refused, or with `overwrite` its two files are replaced; anything else in
  /// the directory is left alone. Throws Error{usage} for an existing result, Error{unreadable} for the file system's no.
  ResultDirectory(std::filesystem::path path, bool overwrite);
  ~ResultDirectory();
  ResultDirectory(const ResultDirectory&) = delete;
  ResultDirectory& operator=(const ResultDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Adds a record to the pair in hand; nothing reaches the file before commit().
  template <Described R>
  void append(std::string_view type, const R& record) {
    append_line(type, to_json_value(record));
  }
  void append_line(std::string_view type, const Json& record);
  /// Writes the pair in hand in one piece. Throws Error{unreadable} if the disk is full.
  void commit();
  /// Replaces report.json in one step.
  void write_report(const Json& report);

 private:
  std::filesystem::path path_;
  std::FILE* records_ = nullptr;
  std::string pending_;
};

/// report.json of a result directory, or the file itself. Throws Error{unreadable}.
Json read_report(const std::filesystem::path& directory_or_file);

}  // namespace kvdiv
