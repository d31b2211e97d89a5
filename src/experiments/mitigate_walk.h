#pragma once
// One arm along a text that is given: logits of every step, and the time that its calls took.
#include <cstdint>
#include <vector>

#include "kvdiv/decode/arms.h"
#include "kvdiv/decode/cache_remedies.h"

namespace kvdiv {

/// Step t has the logits behind prompt + tokens[0 … t − 1].
struct GivenText {
  std::span<const TokenId> prompt;
  std::span<const TokenId> tokens;

  std::int64_t n_steps() const { return std::ssize(tokens); }
  std::vector<TokenId> prefix(std::int64_t step) const;
};

struct WalkedSteps {
  std::vector<std::vector<double>> logits;  ///< [steps][V]
  double seconds = 0.0;                     ///< in the arm's calls, prefill and the remedy's own work included
};

/// ON, the remedy (or null) after each of its calls. Throws Error{invalid_measurement} that names `what` if a logit is
/// not finite.
WalkedSteps walk_on(const Arms& arms, const GivenText& text, CacheRemedy* remedy, const std::string& what);

/// OFF, the first `n_steps` steps.
WalkedSteps walk_off(const Arms& arms, const GivenText& text, std::int64_t n_steps, const std::string& what);

}  // namespace kvdiv
