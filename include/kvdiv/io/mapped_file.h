#pragma once
// A file's bytes, mapped read-only. A checkpoint is read in place and given back page by page: 13 GB of weights need no
// 13 GB of memory beside the cast ones.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace kvdiv {

class BusErrorMessage;

/// Movable, not copyable; the bytes stay where they are when the object moves. Reading a page that is no longer there,
/// because somebody cut the file off meanwhile, ends the process with a message and the exit code of an unreadable file.
class MappedFile {
 public:
  /// Throws Error{unreadable} if the path is absent, not a regular file, or cannot be mapped. Zero bytes are allowed.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Gives back the memory of the pages that lie wholly inside [offset, offset + n): they no longer count as resident,
  /// and are read from the file again if touched. A range outside the file is cut to it.
  void drop(std::size_t offset, std::size_t n) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<BusErrorMessage> on_bus_error_;  ///< before the pages go, so does this
};

}  // namespace kvdiv
