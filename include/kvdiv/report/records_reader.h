#pragma once
// Reading records.jsonl again, line by line: a result may be larger than memory.
#include <filesystem>
#include <functional>
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// Calls `visit` for every record of a result directory, in order. A last line without its newline was torn by an
/// interruption and is dropped. Throws Error{unreadable} that names file and line.
void for_each_record(const std::filesystem::path& directory,
                     const std::function<void(const std::string& type, const Json& record)>& visit);

}  // namespace kvdiv
