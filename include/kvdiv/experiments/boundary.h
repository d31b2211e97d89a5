#pragma once
// Experiment 4, `kvdiv boundary`: when do texts part, and is it a matter of margins? A function of a run's records; nothing
// is decoded.
#include "kvdiv/experiments/context.h"
#include "kvdiv/stats/pair_table.h"

namespace kvdiv {

/// Conditions: {condition, n_pairs, n_prompts, n_flipped, n_seeds, margins, calibration, correlations, thirds}; see
/// docs/experiments.md.
///
/// Correlations of the flip index with the pair's mean KL, on the same-prefix KL and on the free-running mean of the paper;
/// with all flips, without those at step ≤ 1 and ≤ 3; Pearson, Spearman, and the partial correlation given the pair's mean
/// margin. "pairs" counts every (prompt, seed) as a sample, as the paper does; "prompts" takes one mean per prompt, which
/// is what is independent. Thirds: Welch's t of the mean KL of early flips against late ones.
///
/// margins: a change of the largest logit (of greedy decoding: a flip) needs margin_on ≤ 2·max|Δlogit|: no logit moves by
/// more than half of that. "predicted" are the steps where that holds: the share of flips among them must be 1, and how
/// many of them flipped says how sharp the bound is. The expected number of flips is of the model that the margin moves by
/// N(0, σ²), σ being the RMS of margin_off − margin_on where both arms have the same top token.
ExperimentResult analyse_boundary(const PairTable& table);

}  // namespace kvdiv
