#pragma once
// A fresh directory for a test, removed at its end; the results in it are held against the schemas first.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "support/schema.h"

namespace kvdiv::test {

class TempDir {
 public:
  TempDir() {
    static int counter = 0;
    path_ = std::filesystem::temp_directory_path() / ("kvdiv-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    if (is_checked_) expect_valid_results(path_);
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// For tests that write broken results on purpose: they are not held against the schemas.
  void holds_broken_results() { is_checked_ = false; }

 private:
  std::filesystem::path path_;
  bool is_checked_ = true;
};

}  // namespace kvdiv::test
