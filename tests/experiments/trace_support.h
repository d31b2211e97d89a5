#pragma once
// What the tests of `trace` share.
#include <ATen/ops/round.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "kvdiv/experiments/trace.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {

inline ExperimentResult trace(Fixture& f, const TraceParams& params) {
  Context context = f.context();
  return run_trace(context, params);
}

inline TraceParams quick(DType dtype, std::vector<std::int64_t> steps) {
  TraceParams p;
  p.dtype = {dtype};
  p.step = std::move(steps);
  p.max_steps = *std::max_element(p.step.begin(), p.step.end()) + 1;
  p.ignore_eos = true;
  p.no_gqa = true;
  return p;
}

/// To multiples of 2^-12; the sum turns −0 into 0.
inline at::Tensor to_grid(const at::Tensor& x) { return at::add(at::mul(at::round(at::mul(x, 4096.0)), 1.0 / 4096.0), 0.0); }
inline EditTap on_grid() {
  return EditTap([](Site, std::int64_t) { return true; },
                 [](Site, std::int64_t, const at::Tensor& x) { return to_grid(x); });
}

/// The records of a type, in the order in which they were written.
inline std::vector<Json> records_of(const Fixture& f, const std::string& type) {
  std::vector<Json> out;
  std::istringstream lines(f.sink.text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(type + "{")) out.push_back(Json::parse(line.substr(type.size())));
  return out;
}

/// The row of a table with these values; fails without one.
inline Json row_of(const Json& rows, const Json& wanted) {
  for (const Json& row : rows) {
    bool fits = true;
    for (const auto& [key, value] : wanted.items()) fits = fits && row.at(key) == value;
    if (fits) return row;
  }
  ADD_FAILURE() << "no row " << wanted;
  return {};
}

}  // namespace kvdiv::test
