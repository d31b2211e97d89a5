#pragma once
// Files for tests: a folder that cleans up after itself, safetensors bytes by hand, and the words of a refusal.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "kvdiv/base/error.h"

namespace kvdiv::test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvdiv-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Length, header, data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {},
                                     std::optional<std::uint64_t> claimed_length = std::nullopt) {
  std::string bytes;
  const std::uint64_t n = claimed_length.value_or(header.size());
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(n >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

/// The message of the Error{unreadable} that `action` throws; "no error" if it does not.
template <class F>
std::string refusal(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::unreadable ? error.what() : std::string("wrong kind: ") + error.what();
  }
  return "no error";
}

/// An environment variable for the life of the object; nullptr unsets it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedEnv() { set(old_ ? old_->c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void set(const char* value) { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace kvdiv::test
