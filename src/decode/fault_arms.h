#pragma once
// The four kinds of faulty arms that faults are made of.
#include <memory>

#include "kvdiv/decode/faults.h"

namespace kvdiv {

/// Decode steps by a decoder of another config over the same weights.
std::unique_ptr<ArmFault> other_model(const FaultSpec& spec);
/// Departures from the rule of positions and visibility.
std::unique_ptr<ArmFault> other_positions(const FaultSpec& spec);
/// The cache holds, or attention gets, something else than what was written.
std::unique_ptr<ArmFault> other_cache(const FaultSpec& spec);
/// Other tokens than the text's, or another position's logits.
std::unique_ptr<ArmFault> other_tokens(const FaultSpec& spec);

}  // namespace kvdiv
