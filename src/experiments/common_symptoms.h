#pragma once
// The table of symptoms: what a known fault looks like from outside. A symptom is a row of it; it sees evidence, never
// what was planted.
#include <optional>
#include <span>
#include <string>

#include "common_evidence.h"
#include "kvdiv/decode/faults.h"

namespace kvdiv {

/// A symptom that fits: what the evidence says in a sentence, and the fault with the size and the place that it shows.
struct Finding {
  std::string sentence;
  FaultSpec estimate;
};

struct Symptom {
  Fault fault;
  std::string_view explanation;  ///< what such a fault is, in a line
  /// None if the evidence does not fit.
  std::optional<Finding> (*look)(const Evidence& evidence);
};

std::span<const Symptom> symptoms();

/// All that fit, in the table's order.
std::vector<Finding> matching_symptoms(const Evidence& evidence);

}  // namespace kvdiv
