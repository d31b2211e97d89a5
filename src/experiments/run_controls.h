#pragma once
// The controls of `run`: what must hold before a difference between the arms means anything.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common_fingerprint.h"
#include "common_setup.h"
#include "kvdiv/experiments/run.h"

namespace kvdiv {

struct ControlTally {
  bool on_on_bit_equal = true, off_off_bit_equal = true, prefill_bit_equal = true, order_independent = true;
  bool alignment_independent = true;
  TokenCount n_tokens_on, n_tokens_off;

  bool all_hold() const;
  /// Names of those that do not hold.
  std::vector<std::string> failed() const;
};

/// The controls that are true or false, by their key.
std::span<const std::pair<bool ControlTally::*, const char*>> boolean_controls();

Json to_json(const ControlTally& tally);

/// One pair of the main pass, to be repeated.
struct ControlPair {
  const PromptItem* prompt;
  std::int64_t seed;
  PairFingerprint seen;
};

inline constexpr std::size_t kControlPairs = 2;  ///< pairs of each condition that they repeat

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
