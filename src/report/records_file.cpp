#include "kvdiv/report/records_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

[[noreturn]] void fail_write(const std::filesystem::path& path, int code) {
  const char* const remedy =
      code == ENOSPC || code == EDQUOT ? "; free some space, then go on with --resume" : "; then go on with --resume";
  fail_unreadable("{}: cannot be written: {}{}", path.string(), std::strerror(code), remedy);
}

/// All bytes, or the error number.
int write_all(int fd, std::string_view text, std::int64_t offset) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd, text.data(), text.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    text.remove_prefix(static_cast<std::size_t>(n));
    offset += n;
  }
  return 0;
}

std::string read_at(int fd, std::int64_t offset, std::int64_t n_bytes) {
  std::string text(static_cast<std::size_t>(n_bytes), '\0');
  std::size_t n = 0;
  while (n < text.size()) {
    const ssize_t got = ::pread(fd, text.data() + n, text.size() - n, offset + static_cast<std::int64_t>(n));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    n += static_cast<std::size_t>(got);
  }
  text.resize(n);
  return text;
}

}  // namespace

RecordsFile::RecordsFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_unreadable("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  // A file system without locks has nothing to say; then two processes are the user's own care.
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd_);
    fd_ = -1;
    fail_usage("--output {}: another kvdiv is writing there; wait for it, or use another directory",
               path_.parent_path().string());
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    fail_unreadable("{}: cannot be written: not a regular file", path_.string());
  }
  size_ = status.st_size;
}

RecordsFile::~RecordsFile() {
  if (fd_ >= 0) ::close(fd_);  // gives the lock back
}

void RecordsFile::cut() {
  if (::ftruncate(fd_, at_) != 0) fail_write(path_, errno);
  size_ = at_;
}

void RecordsFile::sync() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail_write(path_, errno);
}

std::optional<FinishedPair> RecordsFile::take_pair(const std::string& pair_id) {
  if (at_ == size_) return std::nullopt;
  if (!reader_) {
    if (at_ != 0) return std::nullopt;  // other records came before: from here on they are computed again
    reader_ = std::make_unique<PairReader>(path_);
  }
  if (reader_->offset() != at_) return std::nullopt;
  std::optional<FinishedPair> found = reader_->next();
  if (!found) {
    cut_note_ = reader_->problem();
    cut();
    return found;
  }
  if (found->pair.pair_id != pair_id)
    fail_unreadable("{}: line {}: pair {} where this run has {}: not its records; start over with --overwrite",
                    path_.string(), reader_->n_lines(), short_name(found->pair.pair_id), short_name(pair_id));
  at_ = reader_->offset();
  n_lines_ = reader_->n_lines();
  ++n_taken_;
  return found;
}

/// Whether the lines stand in the file already. What is torn there is cut off.
bool RecordsFile::is_there(std::string_view lines) {
  if (at_ == size_) return false;
  constexpr std::int64_t kLongestLine = 1 << 20;  // so that the line at which they differ is seen whole
  const std::string there = read_at(fd_, at_, std::min(std::ssize(lines) + kLongestLine, size_ - at_));
  if (there.starts_with(lines)) return true;
  const auto differs = static_cast<std::size_t>(
      std::mismatch(there.begin(), there.end(), lines.begin(), lines.end()).first - there.begin());
  const std::size_t newline = differs == 0 ? std::string::npos : there.rfind('\n', differs - 1);
  const std::size_t begin = newline == std::string::npos ? 0 : newline + 1, end = there.find('\n', begin);
  const std::int64_t line =
      n_lines_ + 1 + std::count(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  if (end != std::string::npos && Json::accept(there.substr(begin, end - begin)))
    fail(ErrorKind::invalid_measurement,
         "{}: line {}: this record was computed again and differs: the machine does not give the same bits twice; "
         "start over with --overwrite",
         path_.string(), line);
  cut_note_ = fmt::format("line {}: torn", line);
  cut();
  return false;
}

void RecordsFile::commit(std::string_view lines) {
  if (!is_there(lines)) {
    if (const int code = write_all(fd_, lines, at_); code != 0) {
      // Half a pair must not stay behind. If even that fails, the torn rest is cut off by the next --resume.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, at_);
      fail_write(path_, code);
    }
    size_ = at_ + std::ssize(lines);
  }
  at_ += std::ssize(lines);
  n_lines_ += std::count(lines.begin(), lines.end(), '\n');
}

}  // namespace kvdiv
