#pragma once
// The conditions of one run are one family of tests.
#include <optional>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/stats/hypothesis.h"

namespace kvdiv {

/// Puts McNemar's tests with p adjusted over the conditions (Bonferroni, as in the paper) into `conditions`, and
/// Benjamini–Hochberg's beside them under "p_benjamini_hochberg" {exact, mid_p, chi2}.
void adjust_family(Json& conditions, std::vector<std::optional<McNemarResult>> tests);

}  // namespace kvdiv
