#include "kvdiv/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bus_error.h"
#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_open(const std::filesystem::path& path, int code) {
  if (code == ENOENT) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(path, ignored))
      fail_unreadable("{}: is a link to {}, which does not exist (a broken or unfinished download)", path.string(),
                      std::filesystem::read_symlink(path, ignored).string());
    fail_unreadable("{}: no such file", path.string());
  }
  fail_unreadable("{}: cannot be opened: {}", path.string(), std::strerror(code));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait; it has no effect on regular files.
  const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail_open(path_, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    fail_unreadable("{}: cannot be examined: {}", path_.string(), std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail_unreadable("{}: is a directory, expected a file", path_.string());
  if (!S_ISREG(status.st_mode)) fail_unreadable("{}: is not a regular file (a pipe, socket or device)", path_.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses a length of 0
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED)
    fail_unreadable("{}: {} bytes cannot be mapped: {}", path_.string(), size_, std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
  constexpr std::size_t kLongestPath = 300;
  std::string shown = path_.string();
  if (shown.size() > kLongestPath) shown = "…" + shown.substr(shown.size() - kLongestPath);
  on_bus_error_ = std::make_unique<BusErrorMessage>(
      mapped, size_,
      fmt::format("kvdiv: {}: was cut off while it was read; finish writing it, then try again\n", shown));
}

MappedFile::~MappedFile() {
  on_bus_error_.reset();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, std::size_t{0})),
      on_bus_error_(std::move(other.on_bus_error_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(on_bus_error_, other.on_bus_error_);
  return *this;
}

void MappedFile::drop(std::size_t offset, std::size_t n) const {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (offset >= size_) return;
  const std::size_t end = std::min(size_, offset + std::min(n, size_ - offset));
  const std::size_t first = (offset + page - 1) / page * page;
  // The file's last page is whole for our purpose: nothing else lives in it.
  const std::size_t last = end == size_ ? end : end / page * page;
  if (first >= last) return;
  // A hint: if the kernel declines, the pages merely stay resident.
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace kvdiv
