#pragma once
// Reading records.jsonl again, line by line: a result may be larger than memory.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

using RecordVisitor = std::function<void(const std::string& type, const Json& record)>;

/// Calls `visit` for every record of a result directory, in order. A last line without its newline was torn by an
/// interruption and is dropped. A line is JSON under the limits of parse_json, with a text at "type". Throws
/// Error{unreadable} that names file and line.
void for_each_record(const std::filesystem::path& directory, const RecordVisitor& visit);

/// Opens a file of records. Throws Error{unreadable}, also for a pipe, which would wait for a writer, and a device, which has
/// no end.
std::ifstream open_records(const std::filesystem::path& file);

/// The same of an open stream; `file` starts each message.
void read_records(std::istream& in, const std::string& file, const RecordVisitor& visit);

}  // namespace kvdiv
