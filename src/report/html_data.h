#pragma once
// What a page is made of: one JSON value, small however large the result is.
#include <filesystem>
#include <string>
#include <vector>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// The report without what no chart and no text of the page needs: quantiles that are not drawn, lists of prompts, rows
/// that stand in a table only.
Json slim_report(const Json& report);

/// The tables that render_text shows, as values: [{label, tables: [{title, columns: [{header, cell}], rows: [[value,
/// …], …], n_left_out}]}], one entry a condition (of `paper`: of each experiment; of `selftest`: of the report). A cell
/// of a stat or an interval is [value, low, high], one of a test [p, smallest effect that could have been seen].
Json page_tables(const Json& report);

/// "float16/torch/greedy", "part dot": what a condition is called.
std::string condition_label(const Json& condition);

/// {name, report, tables, records (RunAggregates; null without pairs), note (why there is nothing of the records; "")}
/// of a directory or a report.json and the report that was read from it. Throws Error{unreadable}.
Json page_result(const std::filesystem::path& directory_or_file, const Json& report);

/// Two reports: {settings: [{key, a, b}], only_in_a, only_in_b (labels of conditions), n_compared, n_different,
/// n_without_interval (of one or both), n_in_one (quantities of matching conditions that the other does not have),
/// quantities: [{condition, quantity, a: [value, low, high], b}]}: quantities that both have with an interval, where
/// the two intervals do not overlap, of matching conditions; at most kMaxDifferences of them, the largest distance in
/// widths first.
Json page_differences(const Json& a, const Json& b);

inline constexpr std::size_t kMaxDifferences = 200;
inline constexpr std::size_t kMaxTableRows = 300;

}  // namespace kvdiv
