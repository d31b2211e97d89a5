#include "render_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvdiv/base/text.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/table.h"

namespace kvdiv {
namespace {

constexpr const char* kNone = "–";

std::string plain(const Json& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_boolean()) return v.get<bool>() ? "yes" : "no";
  return v.is_null() ? kNone : v.dump();
}

std::string with_interval(const Json& value, const Json& low, const Json& high) {
  if (!value.is_number()) return kNone;
  return low.is_number() && high.is_number() ? short_number(value) + " " + interval_text(low, high)
                                             : short_number(value);
}

std::string test_text(const Json& test) {
  const Json& adjusted = at_path(test, "p_adjusted");
  const Json& p = adjusted.is_number() ? adjusted : at_path(test, "p");
  if (!p.is_number()) return kNone;
  const Json& detectable = at_path(test, "min_detectable_effect");
  if (p.get<double>() < 0.05 || !detectable.is_number()) return short_number(p);
  return fmt::format("{} (could see {})", short_number(p), short_number(detectable));
}

std::string cell_text(const Json& v, Cell cell) {
  switch (cell) {
    case Cell::text:
      return plain(v);
    case Cell::count:
      return count_text(v);
    case Cell::number:
      return short_number(v);
    case Cell::percent:
      return percent_text(v);
    case Cell::mean_ci:
      return with_interval(at_path(v, "mean"), at_path(v, "ci_low"), at_path(v, "ci_high"));
    case Cell::value_ci:
      return with_interval(at_path(v, "value"), at_path(v, "low"), at_path(v, "high"));
    case Cell::test:
      return test_text(v);
    case Cell::list:
      return v.is_null() ? kNone : v.dump();
  }
  return kNone;
}

}  // namespace

const Json& at_path(const Json& j, const std::string& path) {
  static const Json null;
  const Json* here = &j;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (!here->is_object() || !here->contains(key)) return null;
    here = &(*here)[key];
    begin = end + 1;
  }
  return *here;
}

std::string interval_text(const Json& low, const Json& high) {
  return low.is_number() && high.is_number() ? fmt::format("[{}, {}]", short_number(low), short_number(high)) : kNone;
}

std::string percent_text(const Json& value) {
  if (!value.is_number()) return kNone;
  const double p = 100.0 * value.get<double>();
  return p == 0.0 || p == 100.0 ? fmt::format("{:.0f} %", p) : fmt::format("{:.3g} %", p);
}

std::string count_text(const Json& value) {
  if (!value.is_number_integer()) return kNone;
  const auto n = value.get<std::int64_t>();
  return n < 0 ? std::to_string(n) : with_commas(static_cast<std::uint64_t>(n));
}

std::vector<const Json*> ordered_rows(const Json& j, const TableSpec& spec) {
  std::vector<const Json*> out;
  const auto keep = [&](const Json& row) {
    if (row.is_object() && (spec.keep == nullptr || spec.keep(row))) out.push_back(&row);
  };
  const Json& rows = at_path(j, spec.rows);
  if (rows.is_object()) keep(rows);
  if (rows.is_array()) std::for_each(rows.begin(), rows.end(), keep);
  if (spec.largest_by.empty()) return out;
  const auto key = [&](const Json* row) {
    const Json& v = at_path(*row, spec.largest_by);
    return v.is_number() ? v.get<double>() : -1.0;
  };
  std::stable_sort(out.begin(), out.end(), [&](const Json* a, const Json* b) { return key(a) > key(b); });
  return out;
}

std::string render_table(const Json& j, const TableSpec& spec, int indent) {
  const std::vector<const Json*> rows = ordered_rows(j, spec);
  if (rows.empty()) return {};
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  const std::size_t n_shown = spec.max_rows > 0 ? std::min(spec.max_rows, rows.size()) : rows.size();
  std::string title = spec.title;
  if (n_shown < rows.size()) title += fmt::format(" (the {} largest of {})", n_shown, rows.size());
  std::vector<std::string> header;
  for (const Column& c : spec.columns) header.push_back(c.header);
  TextTable table(std::move(header));
  for (std::size_t i = 0; i < n_shown; ++i) {
    std::vector<std::string> cells;
    for (const Column& c : spec.columns) cells.push_back(cell_text(at_path(*rows[i], c.path), c.cell));
    table.row(std::move(cells));
  }
  return margin + title + "\n" + table.str(indent + 2);
}

}  // namespace kvdiv
