#pragma once
// Choosing the next token from logits, in FP64 on the host: both arms choose by the same rule and the same number.
//
//   weights   w_i = exp((l_i − max l) / T)
//   top-k     the k largest logits stay
//   top-p     of those, renormalised, the smallest set of the most probable stays whose mass reaches p; the token that
//             crosses p belongs to it
//   draw      the first id, in id order, at which the cumulated weight exceeds u · Σw
//
// Equal logits rank by id, lowest first. A token of weight zero is never drawn.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/text.h"

namespace kvdiv {

/// A mass m reaches p if m ≥ p − kMassTolerance: the FP64 softmax of log(1/2), log(1/4), … is off by units of 1e-16,
/// and "reaches exactly" must not hang on them. p = 1 is exempt: everything that has weight stays.
inline constexpr double kMassTolerance = 1e-12;

/// The strategies are exclusive: top-k uses temperature and top_k, top-p uses temperature and top_p, greedy none.
struct SamplingParams {
  Strategy strategy = Strategy::greedy;
  double temperature = 0.7;  ///< 0 is greedy
  std::int64_t top_k = 50;
  double top_p = 0.95;
};

/// Throws Error usage, naming the flag, for a temperature that is negative or not finite, top_k < 1, or top_p outside
/// (0, 1]. All three are checked, whatever the strategy.
void validate(const SamplingParams& params);

/// A token and what it is ranked by.
struct RankedToken {
  double logit;
  TokenId id;
};

struct SamplingScratch {
  std::vector<double> weights;       ///< by id
  std::vector<RankedToken> ranking;  ///< those that may still be drawn, in no order
};

/// Keeps its scratch memory from step to step: O(vocabulary) time and memory a choice, with no sort of the vocabulary.
class Sampler {
 public:
  /// Validates.
  explicit Sampler(const SamplingParams& params);

  /// `logits` are indexed by token id; −∞ means weight zero. `uniform` in [0, 1) is ignored by greedy.
  /// Throws Error invalid_measurement if a logit is NaN or +∞, or if none is finite.
  TokenId choose(std::span<const double> logits, double uniform);

 private:
  SamplingParams params_;
  SamplingScratch scratch_;
};

/// One choice.
TokenId choose_token(std::span<const double> logits, const SamplingParams& params, double uniform);

/// Ids that temperature (> 0), then top-k, then renormalisation, then top-p leave over, in id order.
std::vector<TokenId> surviving_tokens(std::span<const double> logits, double temperature, std::optional<std::int64_t> k,
                                      std::optional<double> p);

/// Lowest id of the largest logit. Throws as Sampler::choose.
TokenId argmax_token(std::span<const double> logits);

}  // namespace kvdiv
