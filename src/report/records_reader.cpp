#include "kvdiv/report/records_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kvdiv/base/error.h"
#include "kvdiv/report/result_directory.h"

namespace kvdiv {

void for_each_record(const std::filesystem::path& directory,
                     const std::function<void(const std::string& type, const Json& record)>& visit) {
  const auto file = directory / kRecordsFile;
  std::ifstream in(file, std::ios::binary);
  if (!in) fail_unreadable("{}: cannot be read: {}", file.string(), std::strerror(errno));
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) break;  // no newline behind it: torn
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("type") || !record["type"].is_string())
      fail_unreadable("{}: line {}: expected a record {{\"type\": …}}, found {}", file.string(), number,
                      short_name(line));
    visit(record["type"].get<std::string>(), record);
  }
  if (in.bad()) fail_unreadable("{}: cannot be read: {}", file.string(), std::strerror(errno));
}

}  // namespace kvdiv
