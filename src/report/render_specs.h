#pragma once
// The tables of each experiment; the registry is in render_specs.cpp.
#include "render_tables.h"

namespace kvdiv {

std::vector<TableSpec> falsify_tables();
std::vector<TableSpec> boundary_tables();
std::vector<TableSpec> trace_tables();
std::vector<TableSpec> noise_tables();
std::vector<TableSpec> shapes_tables();
std::vector<TableSpec> mitigate_tables();
/// Of the whole report: a selftest has no conditions.
std::vector<TableSpec> selftest_tables();
/// Of the report's `signatures`.
std::vector<TableSpec> signature_tables();

}  // namespace kvdiv
