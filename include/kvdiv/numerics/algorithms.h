#pragma once
// What a vendor's library chose, as the report has it.
#include "kvdiv/base/json.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// [{n, k, dtype, from_rows, to_rows, n_row_counts, algorithm, …}]; null for a backend that chooses nothing.
Json algorithms_of(const Ops& ops);

}  // namespace kvdiv
