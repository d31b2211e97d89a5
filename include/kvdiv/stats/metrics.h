#pragma once
// How far apart two rows of logits are. Everything is FP64; the only inputs are the two rows.
#include <span>

#include "kvdiv/base/records.h"
#include "kvdiv/base/step_metrics.h"

namespace kvdiv {

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
