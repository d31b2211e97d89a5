#pragma once
// Part `projection`: keys and values of the same states, projected jointly and token by token.
#include "common_setup.h"

namespace kvdiv {

/// [{layer, k_max_ulp, k_mean_ulp, k_differing_rate, k_rel_l2, v_…}]: the states are those of the joint prefill, so that
/// every layer's difference is its own and none is inherited. Rows of one token are what decoding computes.
Json projection_rows(LoadedModel& model, const Ops& ops, std::span<const PromptItem> prompts);

}  // namespace kvdiv
