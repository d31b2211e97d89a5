#pragma once
// How far apart two rows of logits are. Everything is FP64; the only inputs are the two rows.
#include <cstdint>
#include <span>

#include "kvdiv/base/records.h"

namespace kvdiv {

/// One step of the two arms. p is the softmax of ON's logits, q that of OFF's, both at temperature 1.
///
/// Masked tokens: a logit of −inf in both arms is a probability of 0 in both and contributes 0. −inf in one arm against
/// a finite logit in the other is zero probability against positive, however small: the KL in that direction is +inf
/// (the other one and JS stay finite). A NaN or +inf anywhere, an arm that is −inf everywhere, or finite logits more
/// than 1e300 apart leave no softmax to compare: both KLs, JS and max_abs_dlogit are NaN, and top1_equal is false, so
/// that such a step never reads as "no difference".
struct StepMetrics {
  double kl_on_off_nats = 0.0;  ///< Σ p ln(p/q); ≥ 0, +inf and NaN as above
  double kl_off_on_nats = 0.0;  ///< Σ q ln(q/p); likewise
  double js_nats = 0.0;         ///< Jensen-Shannon divergence; 0 … ln 2
  double max_abs_dlogit = 0.0;  ///< largest |on − off|; +inf where one arm only is −inf
  bool bit_equal = false;   ///< all bit patterns equal: −0.0 differs from +0.0, a NaN equals a NaN of the same bits
  bool top1_equal = false;  ///< top1_on = top1_off, and both rows have a softmax
  double margin_on = 0.0;   ///< top-1 minus top-2 logit; 0 on a tie, +inf where there is no second token to choose
  double margin_off = 0.0;  ///< (vocabulary of 1, or all others −inf), NaN if every logit is NaN
  bool tie_on = false;      ///< the largest logit occurs more than once (−0.0 = +0.0 here)
  bool tie_off = false;
  std::int64_t n_nonfinite = 0;  ///< NaN, +inf and −inf logits, both arms together (masked tokens count too)
  std::int64_t top1_on = -1;     ///< id of the largest logit, the lowest such id on a tie; NaN is never chosen;
  std::int64_t top1_off = -1;    ///< −1 if every logit is NaN
};

/// Compares two rows of logits of one vocabulary (one or more finite doubles or the special values above; anything else
/// is an internal error: different sizes, no logits).
///
/// The divergences are sums of terms that are each ≥ 0, so that nothing cancels: with t = ln(q/p) of a token,
///     KL(p‖q) = Σ p (eᵗ − 1 − t),    JS = Σ (p + q)/2 · (ln 2 − H(1/(1 + eᵗ))),   H the binary entropy in nats.
/// (The first adds Σ (q − p) = 0 to the definition; the second is the definition, token by token. See Csiszár &
/// Shields, "Information Theory and Statistics", 2004, section 4, on f-divergences.) t comes from the logit
/// differences, not from two rounded log-softmaxes. Consequence, measured against 100-digit arithmetic: relative error
/// below 2e-14 for divergences from 1e-30 nats (logits 1e-14 apart) to hundreds of nats, at 2 to 256,000 tokens.
/// Identical rows give exactly 0. What such a small number means is bounded by the logits, not by this function: FP64
/// logits of size 10 are rounded to 1e-15 each, which alone makes a KL of 1e-30.
StepMetrics compare_logits(std::span<const double> on, std::span<const double> off);

/// Copies the metrics into a record; pair_id, clock, step, same_prefix and the tokens are the caller's.
void put_metrics(const StepMetrics& metrics, StepRecord& record);

/// If every logit moves by at most delta (≥ 0, same unit as the logits), KL in either direction is at most δ²/2 nats:
/// KL = ln E_p[exp(−(d − E_p d))] with d in [−δ, δ], and Hoeffding's lemma (1963) bounds that by (2δ)²/8.
double kl_bound_from_dlogit(double delta);

}  // namespace kvdiv
