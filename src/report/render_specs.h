#pragma once
// The tables of each experiment; the registry is in render_specs.cpp.
#include "render_tables.h"

namespace kvdiv {

std::vector<TableSpec> falsify_tables();
std::vector<TableSpec> boundary_tables();
std::vector<TableSpec> trace_tables();
std::vector<TableSpec> noise_tables();

}  // namespace kvdiv
