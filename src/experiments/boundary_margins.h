#pragma once
// Flips against margins.
#include "kvdiv/base/json.h"
#include "kvdiv/stats/pair_table.h"

namespace kvdiv {

/// {of, n_steps, flips, tie_flips, predicted, share_explained {value, low, high}, …, sigma, expected_flips, reason}. A flip is
/// a change of the largest logit; under sampling (`of` says so) the token drawn hangs on more than that.
Json margins_of(const PairTable& table, std::int32_t condition);

/// [{margin_from, margin_to, n_steps, flips, flip_rate {value, low, high}, expected_rate}]: bins of ON's margin that double.
Json calibration_of(const PairTable& table, std::int32_t condition);

/// [{steps: "1", "2–3", …, n_steps, kl_nats {value, low, high}}]: mean same-prefix KL in windows of steps that double.
Json kl_over_steps(const PairTable& table, std::int32_t condition);

}  // namespace kvdiv
