#pragma once
// --html and --csv of the commands that write a result.
#include <filesystem>
#include <vector>

#include "command.h"

namespace kvdiv {

/// Refuses a place that cannot be written to before anything is measured: Error{unreadable}.
void require_page_places(const Invocation& invocation);

/// Writes the page of one result or of two, and the tables of the first, that were asked for. Says on stderr if the page
/// has no charts, and what to do.
void write_pages(const Invocation& invocation, const std::vector<std::filesystem::path>& results);

}  // namespace kvdiv
