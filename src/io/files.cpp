#include "kvdiv/io/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/mapped_file.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

/// False with errno.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

[[noreturn]] void fail_to_write(const fs::path& target, std::string_view what) {
  const int code = errno;
  fail_unreadable("{}: {}: {}{}", target.string(), what, std::strerror(code),
                  code == ENOSPC ? "; free some space, or choose another --output" : "");
}

/// A device, a pipe or a socket: root could rename a file over /dev/null.
void write_in_place(const fs::path& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail_to_write(path, "cannot be opened");
  const bool is_written = write_all(fd, text);
  const int code = errno;
  ::close(fd);
  errno = code;
  if (!is_written) fail_to_write(path, "cannot be written");
}

/// A file that is either renamed into place or removed again.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) : target_(target) {
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
      path_ = target.parent_path() /
              fmt::format(".{}.tmp-{}-{}", target.filename().string(), ::getpid(), counter.fetch_add(1));
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno != EEXIST) fail_write("cannot be created");
    }
    if (fd_ < 0) fail_unreadable("{}: cannot be written: no free temporary name beside it", target.string());
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view text) {
    if (!write_all(fd_, text)) fail_write("cannot be written");
  }

  void commit() {
    if (::fsync(fd_) != 0) fail_write("cannot be written");
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail_write("cannot be written");
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail_write("cannot be replaced");
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail_write(std::string_view what) const { fail_to_write(target_, what); }

  fs::path target_, path_;
  int fd_ = -1;
  bool renamed_ = false;
};

/// So that the new name itself survives a power cut. Not every file system can; then the data is still whole.
void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

std::string read_text_file(const fs::path& path, std::uint64_t max_bytes) {
  const MappedFile file(path);
  if (file.bytes().size() > max_bytes)
    fail_unreadable("{}: {} bytes, expected at most {}: not the file meant here?", path.string(),
                    with_commas(file.bytes().size()), with_commas(max_bytes));
  return std::string(as_text(file));
}

Json read_json_file(const fs::path& path) {
  const std::string text = read_text_file(path, kMaxJsonBytes);
  if (text.empty()) fail_unreadable("{}: is empty (0 bytes), expected JSON", path.string());
  if (const std::string foreign = describe_foreign_bytes(text); !foreign.empty())
    fail_unreadable("{}: is {}", path.string(), foreign);
  return parse_json(text, path.string());
}

void write_text_file_atomically(const fs::path& path, std::string_view text) {
  std::error_code ignored;
  const fs::file_status found = fs::status(path, ignored);  // of what a link leads to
  if (fs::exists(found) && !fs::is_regular_file(found) && !fs::is_directory(found)) return write_in_place(path, text);
  const fs::path linked =
      fs::is_symlink(path, ignored) && fs::exists(found) ? fs::canonical(path, ignored) : fs::path();
  const fs::path& target = linked.empty() ? path : linked;
  TemporaryFile file(target);
  file.write(text);
  file.commit();
  sync_directory(target.parent_path());
}

std::string describe_foreign_bytes(std::string_view head) {
  const auto starts_with = [&](std::string_view prefix) {
    return head.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), head.begin(), [](char a, char b) {
             const bool is_upper = b >= 'A' && b <= 'Z';
             return a == (is_upper ? static_cast<char>(b - 'A' + 'a') : b);
           });
  };
  using namespace std::string_view_literals;
  if (starts_with("version https://git-lfs"))
    return "a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`, or download it again";
  if (starts_with("<!doctype html") || starts_with("<html"))
    return "an HTML page (an error or login page saved under this name); download the file again";
  if (head.starts_with("PK\x03\x04"sv))
    return "a zip archive, as PyTorch's .bin and .pt files are; kvdiv reads safetensors only, convert it";
  if (head.starts_with("\x80\x02"sv) || head.starts_with("\x80\x04"sv))
    return "a Python pickle (an old PyTorch file); kvdiv reads safetensors only, convert it";
  if (head.starts_with("GGUF"sv)) return "a GGUF file; kvdiv reads safetensors only, convert it";
  if (head.starts_with("\x1f\x8b"sv)) return "a gzip archive; unpack it";
  return "";
}

}  // namespace kvdiv
