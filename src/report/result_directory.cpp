#include "kvdiv/report/result_directory.h"

#include <system_error>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"

namespace kvdiv {

namespace fs = std::filesystem;

ResultDirectory::ResultDirectory(fs::path path, Existing existing) : path_(std::move(path)) {
  std::error_code code;
  fs::create_directories(path_, code);
  if (code || !fs::is_directory(path_))
    fail_unreadable("--output {}: cannot make the directory: {}", path_.string(),
                    code ? code.message() : "it is a file");
  const bool has_report = fs::exists(path_ / kReportFile);
  const bool has_records = fs::exists(path_ / kRecordsFile) && fs::file_size(path_ / kRecordsFile, code) > 0;
  if (existing == Existing::refuse && (has_report || has_records))
    fail_usage(
        "--output {}: holds a result already; go on with it (--resume), replace it (--overwrite), or use another "
        "directory",
        path_.string());
  records_ = std::make_unique<RecordsFile>(path_ / kRecordsFile);
  if (existing != Existing::resume) {
    fs::remove(path_ / kReportFile, code);
    records_->cut();
  } else if (has_report) {
    previous_ = read_report(path_);
  } else if (has_records) {
    fail_unreadable("{}: there are records but no {}, so nothing says what they are of; start over with --overwrite",
                    path_.string(), kReportFile);
  }
}

void ResultDirectory::append_line(std::string_view type, const Json& record) {
  Json line = Json::object();
  line["type"] = type;
  line.update(record);
  // Generated text may end in the middle of a UTF-8 sequence: such bytes become U+FFFD in the file.
  pending_ += line.dump(-1, ' ', false, Json::error_handler_t::replace);
  pending_ += '\n';
}

void ResultDirectory::commit() {
  records_->commit(pending_);
  pending_.clear();
}

void ResultDirectory::write_report(const Json& report) {
  write_text_file_atomically(path_ / kReportFile, report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json read_report(const fs::path& directory_or_file) {
  const fs::path file = fs::is_directory(directory_or_file) ? directory_or_file / kReportFile : directory_or_file;
  Json report = read_json_file(file);
  const auto schema = report.is_object() ? report.find("schema") : report.end();
  if (!report.is_object() || schema == report.end() || *schema != "kvdiv/report/1")
    fail_unreadable("{}: key schema: expected \"kvdiv/report/1\"; this is not a report of kvdiv", file.string());
  return report;
}

}  // namespace kvdiv
