#pragma once
// What the patches say in a sentence, and the controls without which they say nothing.
#include "kvdiv/base/json.h"

namespace kvdiv {

struct PatchControls {
  bool prefill_bit_equal = true;
  bool self_patch_bit_equal = true;      ///< an arm's own values, put where they are, change no bit
  bool everything_recovers = true;       ///< K, V and the residual stream of the other arm give its logits, bit for bit
  bool cumulative_equals_single = true;  ///< in OFF, patches of layers 1…l and of layer l give the same bits
  bool off_is_stateless = true;          ///< after a patch of OFF its next step has the bits it had without

  bool all_hold() const {
    return prefill_bit_equal && self_patch_bit_equal && everything_recovers && cumulative_equals_single &&
           off_is_stateless;
  }
};

/// With `random_patch`, the stat of pct_recovered of the random patches of all conditions' first.
Json to_json(const PatchControls& controls, const Json& conditions);

/// {kind, sentence}. "kv": OFF's keys and values in ON's cache remove at least half of the mean KL at the last patched step,
/// with all of the 95 % interval; "newest_token": less than half, with all of it; "undecided": the interval says neither;
/// "none": there is no difference to explain; "measured": K and V of all positions were not asked for; "invalid".
Json patch_verdict(const Json& conditions, const PatchControls& controls);

}  // namespace kvdiv
