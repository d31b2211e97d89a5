#pragma once
// What is measured of one step: how far apart the two arms' rows of logits are.
#include <cstdint>
#include <type_traits>

namespace kvdiv {

/// One step of the two arms. p is the softmax of ON's logits, q that of OFF's, both at temperature 1.
///
/// Masked tokens: a logit of −inf in both arms is a probability of 0 in both and contributes 0. −inf in one arm against
/// a finite logit in the other is zero probability against positive, however small: the KL in that direction is +inf
/// (the other one and JS stay finite). A NaN or +inf anywhere, an arm that is −inf everywhere, or finite logits beyond
/// ±1e300 or that far apart leave no softmax to compare: both KLs, JS and max_abs_dlogit are NaN, and top1_equal is false, so
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

/// CUDA kernels leave it in device memory, from where it is copied byte by byte.
static_assert(std::is_trivially_copyable_v<StepMetrics> && std::is_standard_layout_v<StepMetrics>);

}  // namespace kvdiv
