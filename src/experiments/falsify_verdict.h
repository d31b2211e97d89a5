#pragma once
#include "kvdiv/base/json.h"

namespace kvdiv {

/// {kind, sentence}. Of the parts that were run: "rounding" if the KL falls by kVanishes or more with FP32 and FP64,
/// "not_rounding" if it does not, "equivalent" if there is none; "measured" without the part fp32.
/// "invalid": the arms differed at step 0. The part orders has its say too: a difference with one order for both arms is
/// "not_rounding", whatever the dtypes show.
Json falsify_verdict(const Json& conditions, bool prefill_bit_equal);

/// FP32's unit roundoff is 8,192 times smaller than FP16's, 65,536 times smaller than BF16's; KL goes with its square. A
/// factor of ten thousand in KL is far less than either, and far more than chance.
inline constexpr double kVanishes = 1e4;

}  // namespace kvdiv
