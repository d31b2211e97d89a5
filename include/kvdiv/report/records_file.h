#pragma once
// records.jsonl while it is written: one process at a time, whole pairs, and after an interruption what is there is gone
// through again. Records that are computed once more are held against those that are there, byte by byte: a machine that
// does not give the same bits twice is found out instead of mixed into the result.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kvdiv/base/records.h"
#include "kvdiv/report/pair_reader.h"

namespace kvdiv {

class RecordsFile {
 public:
  /// Opens or makes the file and locks it. What is in it is kept, and gone through from its beginning. Error{usage} if
  /// another process writes there, Error{unreadable} for the file system's no.
  explicit RecordsFile(std::filesystem::path path);
  ~RecordsFile();
  RecordsFile(const RecordsFile&) = delete;
  RecordsFile& operator=(const RecordsFile&) = delete;

  std::int64_t size() const { return size_; }
  /// Drops everything from where the writer stands.
  void cut();

  /// The next pair that is there, if it is this one; then the writer stands behind it. None at the end; a torn or damaged
  /// rest is cut off, and `cut_note` says what. Error{unreadable} if another pair is next.
  std::optional<FinishedPair> take_pair(const std::string& pair_id);

  /// Writes these lines where the writer stands, or finds that they are there already. Error{invalid_measurement} if
  /// other whole records are there. Error{unreadable} if the disk is full: the file ends behind the last whole commit.
  void commit(std::string_view lines);

  /// Waits until everything is on the disk, where the file system can: before a report says that it is complete.
  void sync();

  /// Pairs that were taken, and what was cut off ("line 12: no newline behind it"); empty if nothing was.
  std::int64_t n_taken() const { return n_taken_; }
  const std::string& cut_note() const { return cut_note_; }

 private:
  bool is_there(std::string_view lines);

  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t at_ = 0, size_ = 0;  ///< where the writer stands, and the bytes that are there
  std::int64_t n_lines_ = 0;        ///< before the writer
  std::int64_t n_taken_ = 0;
  std::unique_ptr<PairReader> reader_;  ///< as long as it stands where the writer does
  std::string cut_note_;
};

}  // namespace kvdiv
