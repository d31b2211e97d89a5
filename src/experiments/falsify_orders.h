#pragma once
// Part `orders`: the same prompts decoded with both arms summing in one order, and in two. What remains when the order is
// the same is not the order's.
#include <functional>

#include "common_setup.h"

namespace kvdiv {

/// Prompts and steps of each row: every row decodes them anew, and exact orders are slow.
inline constexpr std::size_t kOrderTablePrompts = 8;
inline constexpr std::int64_t kOrderTableSteps = 16;

struct OrderTable {
  /// [{dtype, backend, same_order, accumulator, n_prompts, n_steps, bit_equal_rate, kl_on_off_nats {value, low, high},
  /// flips, tie_flips, max_abs_dlogit}]: greedy, along ON's tokens (the forced clock), step 0 counted, intervals by
  /// prompt. float16 with FP32 and with FP16 accumulators, bfloat16 and float32 with FP32 ones.
  Json rows = Json::array();
  bool prefill_bit_equal = true;     ///< at step 0 both arms make the same calls
  bool same_order_bit_equal = true;  ///< of all steps of the rows with one order
};

/// Stops early if interrupted. Dtypes that `fits` refuses are left out.
OrderTable order_table(Context& context, const DecodeParams& params, const std::function<bool(DType)>& fits);

}  // namespace kvdiv
