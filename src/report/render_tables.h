#pragma once
// Tables of a report as data: which rows, which columns, how a cell is written. An experiment's text is a list of these.
#include <string>
#include <vector>

#include "kvdiv/base/json.h"

namespace kvdiv {

enum class Cell {
  text,      ///< a text, or a whole number as it is (a layer)
  count,     ///< 12,345
  number,    ///< three digits
  percent,   ///< a fraction of 1
  mean_ci,   ///< of a stat: mean [low, high]
  value_ci,  ///< of an interval {value, low, high}
  test,      ///< of a test: p and, where it is not significant, what could have been seen
  list,      ///< [1, 2, 3]
};

struct Column {
  std::string header;
  std::string path;  ///< "l2.median"; empty: the row itself
  Cell cell = Cell::number;
};

struct TableSpec {
  std::string title;
  std::string rows;  ///< path of an array, or of one object
  std::vector<Column> columns;
  std::string largest_by = {};              ///< path of a number: the rows with the largest come first
  std::size_t max_rows = 0;                 ///< 0: all
  bool (*keep)(const Json& row) = nullptr;  ///< rows to show; null: all
};

/// The member at a dotted path, or null.
const Json& at_path(const Json& j, const std::string& path);

/// The rows that a table shows, in its order: those that are objects and kept. `max_rows` is the caller's.
std::vector<const Json*> ordered_rows(const Json& j, const TableSpec& spec);

/// "" where the rows are absent or empty.
std::string render_table(const Json& j, const TableSpec& spec, int indent);

/// The tables of an experiment's condition, by the experiment's name.
const std::vector<TableSpec>& condition_tables(const std::string& experiment);

/// "[1.2e-06, 3.4e-06]"; "–" if there is none.
std::string interval_text(const Json& low, const Json& high);

/// "12 %" of a fraction of 1.
std::string percent_text(const Json& value);
/// "12,345"
std::string count_text(const Json& value);

}  // namespace kvdiv
