#include "moments.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kvdiv/base/error.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {

Moments moments(std::span<const double> values) {
  Moments m{static_cast<double>(values.size())};
  if (values.empty()) return m;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  CompensatedSum sum, first, second;
  for (const double x : values) sum.add(x);
  m.mean = std::clamp(sum.value() / m.n, *low, *high);
  for (const double x : values) {
    first.add(x - m.mean);
    second.add((x - m.mean) * (x - m.mean));
  }
  m.squares = std::max(0.0, second.value() - first.value() * first.value() / m.n);  // the mean's own rounding taken out
  return m;
}

std::vector<double> finite_values(std::span<const double> values) {
  std::vector<double> out;
  out.reserve(values.size());
  std::copy_if(values.begin(), values.end(), std::back_inserter(out), [](double x) { return std::isfinite(x); });
  return out;
}

std::vector<std::vector<double>> finite_rows(std::span<const std::span<const double>> columns, std::string_view who) {
  const std::size_t n = columns.empty() ? 0 : columns.front().size();
  for (const auto& column : columns)
    if (column.size() != n) fail(ErrorKind::internal, "{}: columns of {} and {} values", who, n, column.size());
  std::vector<std::vector<double>> out(columns.size());
  for (std::size_t row = 0; row < n; ++row) {
    if (!std::all_of(columns.begin(), columns.end(), [&](const auto& column) { return std::isfinite(column[row]); }))
      continue;
    for (std::size_t i = 0; i < columns.size(); ++i) out[i].push_back(columns[i][row]);
  }
  return out;
}

int common_exponent(std::initializer_list<std::span<const double>> all) {
  double largest = 0.0;
  for (const auto& values : all)
    for (const double x : values) largest = std::max(largest, std::abs(x));
  int exponent = 0;
  std::frexp(largest, &exponent);
  return exponent;
}

void divide_by_power(std::vector<double>& values, int exponent) {
  for (double& x : values) x = std::ldexp(x, -exponent);
}

}  // namespace kvdiv
