#pragma once
// Tests of two independent samples, and of means being practically zero. Values that are not finite are left out; input
// that leaves too few, or has no spread, gives null and a reason, no NaN, no throw.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "kvdiv/base/enums.h"
#include "kvdiv/stats/hypothesis.h"

namespace kvdiv {

/// Welch's t-test (1947) of equal means without equal variances; variant "unequal variances". Values are taken as
/// independent: give one per prompt (see cluster_means), not one per seed.
/// - effect: mean(x) − mean(y), in the unit of the values; SE = √(s²ₓ/nₓ + s²ᵧ/nᵧ); statistic t = effect/SE.
/// - df: Welch–Satterthwaite, SE⁴/((s²ₓ/nₓ)²/(nₓ − 1) + (s²ᵧ/nᵧ)²/(nᵧ − 1)), not rounded.
/// - ci: 95 %, effect ± t₀.₉₇₅(df) SE. min_detectable_effect: (t₀.₉₇₅(df) + t₀.₈(df)) SE, with the SE that was seen.
/// Null with a reason: everything but effect if a sample has fewer than two values or neither has any spread.
TestResult welch_t(std::span<const double> x, std::span<const double> y);

enum class RankMethod { automatic, exact, asymptotic };
template <>
struct EnumNames<RankMethod> {
  static constexpr std::string_view what = "rank method";
  static constexpr std::array<std::pair<RankMethod, std::string_view>, 3> values{
      {{RankMethod::automatic, "automatic"}, {RankMethod::exact, "exact"}, {RankMethod::asymptotic, "asymptotic"}}};
};

/// The Mann–Whitney U test (1947). statistic: U of x, the pairs (xᵢ, yⱼ) with xᵢ > yⱼ, ties counted half; U of y is
/// nₓnᵧ − U. effect: rank-biserial correlation 2U/(nₓnᵧ) − 1, from −1 (all x below all y) to 1, without an interval.
/// - variant "exact": p = min(1, 2 P(U ≤ min(Uₓ, Uᵧ))) under all orders being equally likely.
/// - variant "asymptotic, tie-corrected, continuity-corrected": p = min(1, 2 P(Z > z)) with z = (max(Uₓ, Uᵧ) − nₓnᵧ/2 −
///   ½)/σ, σ² = nₓnᵧ/12 · ((n + 1) − Σ(t³ − t)/(n(n − 1))), t the sizes of the groups of ties.
/// automatic (as in SciPy): exact if there are no ties and the smaller sample has at most 8 values (and nₓnᵧ ≤ 10 000,
/// which bounds the work), else asymptotic. The two can fall on opposite sides of 0.05: quote the variant with p.
/// min_detectable_effect: (z₀.₉₇₅ + z₀.₈) · 2/(nₓnᵧ) · √(nₓnᵧ(n + 1)/12), U's standard deviation where nothing differs; null
/// if it is above 1: even complete separation would be missed now and then.
/// Null with a reason: everything if a sample is empty; p if all values are equal (U says nothing then; effect is 0),
/// or if exact is asked for with ties or nₓnᵧ > 10 000.
TestResult mann_whitney(std::span<const double> x, std::span<const double> y,
                        RankMethod method = RankMethod::automatic);

/// Equivalence by two one-sided Welch tests (TOST; Schuirmann, 1987) of −margin < mean(x) − mean(y) < margin. `margin`
/// is in the unit of the values. A small p says that the means differ by less than the margin.
/// - p: the larger of the two one-sided p; statistic: t = (effect ± margin)/SE of that side; SE and df as in welch_t.
/// - effect: mean(x) − mean(y), with its 90 % interval: p < 0.05 if and only if that lies within ±margin.
/// - variant: "two one-sided Welch tests". min_detectable_effect is null: the test does not look for an effect.
/// Null with a reason: all but effect as in welch_t, and if the margin is not positive and finite.
TestResult equivalence_welch(std::span<const double> x, std::span<const double> y, double margin);

/// The same for one mean, such as that of paired differences: −margin < mean(x) < margin; df = n − 1, SE = s/√n,
/// variant "two one-sided t-tests of one mean". Differences that are all equal (all 0, say) have no spread and give a
/// reason: such data need no test.
TestResult equivalence_mean(std::span<const double> x, double margin);

}  // namespace kvdiv
