#pragma once
// Part `fp32`: the same pairs again in wider arithmetic, and the control that says how much of the difference any change of
// order makes, with no cache in question.
#include "common_pairs.h"
#include "kvdiv/stats/pair_table.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {

/// What a dtype's pairs came to, by prompt.
struct PrecisionResult {
  std::string condition;
  std::int64_t n_pairs = 0, n_prompts = 0, n_steps = 0, flips = 0, tie_flips = 0, n_diverged = 0;
  std::map<std::string, std::pair<double, double>> kl_by_prompt;  ///< Σ KL and steps
  std::map<std::string, std::pair<double, double>> flips_by_prompt;
};

/// Of the pairs of a condition whose prompts are among `prompts`.
PrecisionResult precision_of(const PairTable& table, std::int32_t condition,
                             const std::vector<const PromptItem*>& prompts);

/// {condition, n_pairs, n_steps, flips, flip_rate {value, low, high}, kl_on_off_nats {value, low, high}, ratio_to_base
/// {value, low, high}}; the ratio is base over this, of the means, resampling prompts.
Json precision_row(const PrecisionResult& result, const PrecisionResult& base);

/// KL(on‖off) as a metric in FP32 computes it: log-softmax, difference and sum in single precision. What it gives for
/// logits that hardly differ is its own rounding, of either sign.
double kl_in_fp32(std::span<const double> on, std::span<const double> off);

/// KL between ON with its prompt prefilled whole and ON with it in chunks: the same arm, another legal order of the same
/// sums. {n_prompts, n_steps, rows: [{chunk, kl_nats {value, low, high}, max_abs_dlogit, on_off_kl_nats, ratio}]}.
Json own_order_control(const Decoder& decoder, const DecodeParams& params,
                       const std::vector<const PromptItem*>& prompts);

}  // namespace kvdiv
