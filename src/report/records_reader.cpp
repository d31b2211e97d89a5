#include "kvdiv/report/records_reader.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/result_directory.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

/// The next line that has its newline, without it; false where there is none.
bool next_line(std::istream& in, std::string& line, const std::string& where) {
  std::array<char, 65536> piece;
  line.clear();
  for (;;) {
    in.getline(piece.data(), std::ssize(piece));
    if (in.bad()) fail_unreadable("{}: cannot be read: {}", where, std::strerror(errno));
    if (in.eof()) return false;
    const auto n = static_cast<std::size_t>(in.gcount());
    if (in.good()) {
      line.append(piece.data(), n - 1);  // gcount counts the newline
      return true;
    }
    line.append(piece.data(), n);  // the piece is full
    in.clear();
    if (line.size() > kMaxJsonBytes)
      fail_unreadable("{}: longer than {} bytes: not a file of records", where, kMaxJsonBytes);
  }
}

}  // namespace

void read_records(std::istream& in, const std::string& file, const RecordVisitor& visit) {
  std::string line;
  for (std::int64_t number = 1;; ++number) {
    const std::string where = fmt::format("{}: line {}", file, number);
    if (!next_line(in, line, where)) return;
    const Json record = parse_json(line, where);
    const auto type = record.is_object() ? record.find("type") : record.end();
    if (type == record.end() || !type->is_string())
      fail_unreadable("{}: expected a record {{\"type\": …}}, found {}", where, short_name(line));
    visit(type->get<std::string>(), record);
  }
}

std::ifstream open_records(const fs::path& file) {
  std::error_code ignored;
  if (const auto status = fs::status(file, ignored); fs::exists(status) && !fs::is_regular_file(status))
    fail_unreadable("{}: is not a regular file", file.string());
  std::ifstream in(file, std::ios::binary);
  if (!in) fail_unreadable("{}: cannot be read: {}", file.string(), std::strerror(errno));
  return in;
}

void for_each_record(const fs::path& directory, const RecordVisitor& visit) {
  const fs::path file = directory / kRecordsFile;
  std::ifstream in = open_records(file);
  read_records(in, file.string(), visit);
}

}  // namespace kvdiv
