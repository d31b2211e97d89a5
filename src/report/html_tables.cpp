// The tables of the human text as values, so that a page formats and folds them.
#include <algorithm>
#include <vector>

#include "html_data.h"
#include "render_specs.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

const char* name_of_cell(Cell cell) {
  switch (cell) {
    case Cell::text:
      return "text";
    case Cell::count:
      return "count";
    case Cell::number:
      return "number";
    case Cell::percent:
      return "percent";
    case Cell::mean_ci:
    case Cell::value_ci:
      return "interval";
    case Cell::test:
      return "test";
    case Cell::list:
      return "list";
  }
  return "text";
}

Json interval(const Json& v, const char* value, const char* low, const char* high) {
  if (!v.is_object()) return nullptr;
  return {at_path(v, value), at_path(v, low), at_path(v, high)};
}

Json cell_value(const Json& v, Cell cell) {
  if (cell == Cell::mean_ci) return interval(v, "mean", "ci_low", "ci_high");
  if (cell == Cell::value_ci) return interval(v, "value", "low", "high");
  if (cell == Cell::test) {
    const Json& adjusted = at_path(v, "p_adjusted");
    return {adjusted.is_number() ? adjusted : at_path(v, "p"), at_path(v, "min_detectable_effect")};
  }
  if (v.is_object()) return short_dump(v, 60);
  return v;
}

Json table_of(const Json& from, const TableSpec& spec) {
  const auto rows = ordered_rows(from, spec);
  if (rows.empty()) return nullptr;
  const std::size_t n_shown = std::min(rows.size(), spec.max_rows > 0 ? spec.max_rows : kMaxTableRows);
  Json out = {{"title", spec.title},
              {"columns", Json::array()},
              {"rows", Json::array()},
              {"n_left_out", rows.size() - n_shown}};
  for (const Column& c : spec.columns) out["columns"].push_back({{"header", c.header}, {"cell", name_of_cell(c.cell)}});
  for (std::size_t i = 0; i < n_shown; ++i) {
    Json cells = Json::array();
    for (const Column& c : spec.columns) cells.push_back(cell_value(at_path(*rows[i], c.path), c.cell));
    out["rows"].push_back(std::move(cells));
  }
  return out;
}

void add_tables(Json& out, const std::string& label, const Json& from, const std::vector<TableSpec>& specs) {
  Json tables = Json::array();
  for (const TableSpec& spec : specs)
    if (Json table = table_of(from, spec); !table.is_null()) tables.push_back(std::move(table));
  if (!tables.empty()) out.push_back({{"label", label}, {"tables", std::move(tables)}});
}

}  // namespace

Json page_tables(const Json& report) {
  Json out = Json::array();
  const Json& name = at_path(report, "experiment.name");
  const std::string experiment = name.is_string() ? name.get<std::string>() : "";
  for (const Json& c : at_path(report, "conditions"))
    add_tables(out, condition_label(c), c, condition_tables(experiment));
  if (experiment == "selftest") add_tables(out, "", report, selftest_tables());
  const Json& parts = at_path(report, "experiments");
  if (!parts.is_object()) return out;
  for (const auto& [part, content] : parts.items())
    for (const Json& c : at_path(content, "conditions"))
      add_tables(out, part + " " + condition_label(c), c, condition_tables(part));
  if (const Json& s = at_path(report, "signatures"); s.is_object())
    add_tables(out, "signatures", s, signature_tables());
  return out;
}

}  // namespace kvdiv
