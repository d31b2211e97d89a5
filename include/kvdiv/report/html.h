#pragma once
// A report as one HTML file that is opened from disk: no network, no server. What is drawn is read out of report.json,
// and out of records.jsonl in one pass whose memory does not depend on the number of records.
#include <filesystem>
#include <vector>

namespace kvdiv {

/// Writes the page of one result, or of two side by side with their differences first. A result is a directory, or a
/// report.json alone, which gives the page without what needs the records. The file is replaced in one step; the same
/// results give the same bytes. Without Chart.js the page has its numbers and texts, and says why it has no charts:
/// false is returned.
/// Throws Error{usage} for another number of results, Error{unreadable} for a result or a file of the page that cannot
/// be read, and for a path that cannot be written.
bool write_html(const std::vector<std::filesystem::path>& results, const std::filesystem::path& file);

/// Where Chart.js is looked for: the program's own data, then where Debian's package libjs-chart.js puts it.
std::vector<std::filesystem::path> chart_js_places(const std::filesystem::path& data_directory);

}  // namespace kvdiv
