#pragma once
// --html and --csv of the commands that write a result.
#include <filesystem>

#include "command.h"

namespace kvdiv {

/// Refuses a place that cannot be written to before anything is measured: Error{unreadable}.
void require_page_places(const Invocation& invocation);

/// Writes the page and the tables of a finished result that were asked for.
void write_pages(const Invocation& invocation, const std::filesystem::path& result);

}  // namespace kvdiv
