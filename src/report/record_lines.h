#pragma once
// Step and pair records in one pass, at the speed of the disk: a run of the paper's size has four million step lines.
#include <filesystem>
#include <functional>
#include <string_view>

#include "kvdiv/base/records.h"

namespace kvdiv {

struct RecordHandlers {
  std::function<void(const StepRecord&)> step;
  std::function<void(const PairRecord&)> pair;
  /// Any other type, as the line stands in the file; empty: such lines are not looked at.
  std::function<void(std::string_view type, std::string_view line)> other = {};
};

/// Calls a handler for each record of a records.jsonl, in order. A last line without its newline was torn by an
/// interruption and is dropped. Throws Error{unreadable} that names file and line.
void for_each_line(const std::filesystem::path& records_file, const RecordHandlers& handlers);

/// A step line as kvdiv writes it: these keys in this order, no white space, a pair_id without escapes. False for any
/// other line, which may still be a step: then the JSON parser decides. About 1 µs, where the parser takes 20.
bool scan_step(std::string_view line, StepRecord& step);

}  // namespace kvdiv
