#pragma once
// The records of a `run`, pair by pair: its step records, then its pair record.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "kvdiv/base/records.h"

namespace kvdiv {

class PairReader {
 public:
  /// Error{unreadable} if the file cannot be opened.
  explicit PairReader(std::filesystem::path records_file);

  /// The next whole pair. None at the end of the file, and where what follows is not a pair: torn by an interruption, or
  /// damaged; `problem` says which.
  std::optional<FinishedPair> next();
  /// The lines of the pair that next() gave last, as they stand in the file.
  const std::string& text() const { return text_; }
  /// Bytes and lines of all pairs so far.
  std::int64_t offset() const { return offset_; }
  std::int64_t n_lines() const { return n_lines_; }
  /// Why the last next() gave none: "line 12: no newline behind it"; empty at the end of the file.
  const std::string& problem() const { return problem_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  bool add_line(const std::string& line, FinishedPair& pair, bool& is_whole);

  std::filesystem::path file_;
  std::ifstream in_;
  std::string text_, problem_;
  std::int64_t offset_ = 0, n_lines_ = 0;
};

}  // namespace kvdiv
