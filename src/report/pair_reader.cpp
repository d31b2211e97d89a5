#include "kvdiv/report/pair_reader.h"

#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/records_reader.h"

namespace kvdiv {

PairReader::PairReader(std::filesystem::path records_file) : file_(std::move(records_file)), in_(open_records(file_)) {}

/// False, with `problem`, for a line that is no step or pair record, or of another pair than the lines before it.
bool PairReader::add_line(const std::string& line, FinishedPair& pair, bool& is_whole) {
  try {
    const Json record = parse_json(line, "not a record");
    const std::string type = record.is_object() ? record.value("type", Json("")).dump() : "";
    if (type == "\"step\"") {
      from_json_value(record, pair.steps.emplace_back(), "step");
      if (pair.steps.back().pair_id == pair.steps.front().pair_id) return true;
      problem_ = "a step of pair " + short_name(pair.steps.back().pair_id) + " among those of another";
    } else if (type == "\"pair\"") {
      from_json_value(record, pair.pair, "pair");
      is_whole = pair.steps.empty() || pair.steps.front().pair_id == pair.pair.pair_id;
      if (is_whole) return true;
      problem_ = "the pair record of " + short_name(pair.pair.pair_id) + " behind the steps of another";
    } else {
      problem_ = "not a step or pair record: " + short_name(line);
    }
  } catch (const Error& error) {
    problem_ = error.what();
  }
  return false;
}

std::optional<FinishedPair> PairReader::next() {
  FinishedPair pair;
  std::string line, text;
  std::int64_t n_lines = 0;
  problem_.clear();
  for (bool is_whole = false; !is_whole;) {
    const bool found = static_cast<bool>(std::getline(in_, line));
    if (!found && n_lines == 0) return std::nullopt;
    if (!found || in_.eof()) {
      problem_ = found ? "no newline behind it" : "the pair ends before its pair record";
    } else if (add_line(line, pair, is_whole)) {
      text += line;
      text += '\n';
      ++n_lines;
      continue;
    }
    problem_ = fmt::format("line {}: {}", n_lines_ + n_lines + 1, problem_);
    return std::nullopt;
  }
  text_ = std::move(text);
  offset_ += std::ssize(text_);
  n_lines_ += n_lines;
  return pair;
}

}  // namespace kvdiv
