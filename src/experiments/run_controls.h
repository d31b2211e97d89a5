#pragma once
// The controls of `run`: what must hold before a difference between the arms means anything.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common_setup.h"
#include "kvdiv/experiments/run.h"

namespace kvdiv {

/// Fingerprints of the logits that each arm produced in the first steps of a pair.
struct PairFingerprint {
  std::string on, off;
  bool operator==(const PairFingerprint&) const = default;
};

/// Hashes the FP64 images of the logits: equal hashes mean equal bits.
class Fingerprinter {
 public:
  void add(const StepView& step);
  PairFingerprint take();

 private:
  Sha256 on_, off_;
};

struct ControlTally {
  bool on_on_bit_equal = true, off_off_bit_equal = true, prefill_bit_equal = true, order_independent = true;
  bool alignment_independent = true;
  TokenCount n_tokens_on, n_tokens_off;

  bool all_hold() const;
  /// Names of those that do not hold.
  std::vector<std::string> failed() const;
};

Json to_json(const ControlTally& tally);

/// One pair of the main pass, to be repeated.
struct ControlPair {
  const PromptItem* prompt;
  std::int64_t seed;
  PairFingerprint seen;
};

inline constexpr std::int64_t kControlSteps = 16;  ///< steps of a pair that the controls repeat
inline constexpr std::size_t kControlPairs = 2;    ///< pairs of each condition that they repeat

/// Decodes a pair's first steps again under the forced clock.
PairFingerprint fingerprint_pair(const Decoder& decoder, const RunParams& params, const Condition& condition,
                                 const PromptItem& prompt, std::int64_t seed, const Planted& planted = {});

/// Repeats the pairs in the reverse order, then the last of these once more.
void repeat_pairs(const Decoder& decoder, const RunParams& params, const Condition& condition,
                  std::span<const ControlPair> pairs, ControlTally& tally, const Planted& planted = {});

/// Moves all weights to another alignment and decodes a pair again. The decoder stays there: call it last.
void check_alignment(Decoder& decoder, const RunParams& params, const Condition& condition, const ControlPair& pair,
                     ControlTally& tally, const Planted& planted = {});

}  // namespace kvdiv
