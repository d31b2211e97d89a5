#pragma once
// --html and --csv of the commands that write a result.
#include <filesystem>
#include <vector>

#include "command.h"

namespace kvdiv {

/// Refuses a place that cannot be written to before anything is measured: Error{unreadable}.
void require_page_places(const Invocation& invocation);

/// The page of one result or of two; says on stderr if it has no charts, and what to do.
void write_page(const std::vector<std::filesystem::path>& results, const std::filesystem::path& file);

/// Writes the page and the tables of a finished result that were asked for.
void write_pages(const Invocation& invocation, const std::filesystem::path& result);

}  // namespace kvdiv
