#pragma once
// Fingerprints of logits: equal hashes mean equal bits.
#include <cstdint>
#include <string>

#include "kvdiv/base/text.h"
#include "kvdiv/decode/pair.h"

namespace kvdiv {

inline constexpr std::int64_t kControlSteps = 16;  ///< steps of a pair that are hashed, and that controls repeat

/// Of the logits that each arm produced in the first steps of a pair.
struct PairFingerprint {
  std::string on, off;
  bool operator==(const PairFingerprint&) const = default;
};

/// SHA-256 of the rows as they were computed, in the compute dtype.
class Fingerprinter {
 public:
  void add(const StepView& step);
  PairFingerprint take() { return {on_.hex(), off_.hex()}; }

 private:
  Sha256 on_, off_;
};

}  // namespace kvdiv
