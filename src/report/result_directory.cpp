#include "kvdiv/report/result_directory.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"

namespace kvdiv {

namespace fs = std::filesystem;

ResultDirectory::ResultDirectory(fs::path path, bool overwrite) : path_(std::move(path)) {
  std::error_code code;
  fs::create_directories(path_, code);
  if (code || !fs::is_directory(path_))
    fail_unreadable("--output {}: cannot make the directory: {}", path_.string(),
                    code ? code.message() : "it is a file");
  const bool has_result = fs::exists(path_ / kReportFile) || fs::exists(path_ / kRecordsFile);
  if (has_result && !overwrite)
    fail_usage("--output {}: holds a result already; use --overwrite or another directory", path_.string());
  fs::remove(path_ / kReportFile, code);
  records_ = std::fopen((path_ / kRecordsFile).c_str(), "wb");
  if (records_ == nullptr)
    fail_unreadable("{}: cannot be written: {}", (path_ / kRecordsFile).string(), std::strerror(errno));
}

ResultDirectory::~ResultDirectory() {
  if (records_ != nullptr) std::fclose(records_);
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
  const bool written = std::fwrite(pending_.data(), 1, pending_.size(), records_) == pending_.size();
  if (!written || std::fflush(records_) != 0)
    fail_unreadable("{}: cannot be written: {}; free some space and run again", (path_ / kRecordsFile).string(),
                    std::strerror(errno));
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
