#pragma once
// Tests of hypotheses and their adjustment for being many. Degenerate input gives null and a reason, no NaN, no throw.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

struct TestResult {
  std::string test;                       ///< "mcnemar", "welch-t", "mann-whitney", "pearson", …
  std::string variant;                    ///< which of its forms: "exact", "mid-p", "chi2-continuity"
  std::optional<double> statistic;        ///< what it is depends on the variant; see there
  std::optional<double> df;               ///< degrees of freedom; null where the null distribution has none
  std::optional<double> p;                ///< two-sided unless the test says otherwise, 0 … 1 (0 only below 1e-308)
  std::optional<double> p_adjusted;       ///< within `family`; null until adjust_family
  std::optional<std::string> adjustment;  ///< "benjamini-hochberg (m = 9)"
  std::optional<std::string> family;      ///< which tests were adjusted together: "conditions"
  std::int64_t n = 0;                     ///< observations (pairs; of two samples the sum), those left out not counted
  std::optional<double> effect;           ///< size, in the unit that the test's own description gives
  /// Interval of `effect`, 95 % unless the test says otherwise, where the test has one.
  std::optional<double> ci_low, ci_high;
  /// The smallest |effect| that such a test finds in 80 % of all cases at p < 0.05, two-sided; null where the test's
  /// description gives no formula. A result that is not significant says nothing about effects below it.
  std::optional<double> min_detectable_effect;
  std::optional<std::string> reason;  ///< why something above is null that the test would otherwise give
};

template <class V>
void describe_fields(V& v, TestResult& t) {
  v.field("test", t.test);
  v.field("variant", t.variant);
  v.field("statistic", t.statistic);
  v.field("df", t.df);
  v.field("p", t.p);
  v.field("p_adjusted", t.p_adjusted);
  v.field("adjustment", t.adjustment);
  v.field("family", t.family);
  v.field("n", t.n);
  v.field("effect", t.effect);
  v.field("ci_low", t.ci_low);
  v.field("ci_high", t.ci_high);
  v.field("min_detectable_effect", t.min_detectable_effect);
  v.field("reason", t.reason);
}

struct McNemarResult {
  std::int64_t b = 0;  ///< pairs right with the cache ON only
  std::int64_t c = 0;  ///< pairs right with the cache OFF only
  TestResult exact, mid_p, chi2;
};

template <class V>
void describe_fields(V& v, McNemarResult& m) {
  v.field("b", m.b);
  v.field("c", m.c);
  v.field("exact", m.exact);
  v.field("mid_p", m.mid_p);
  v.field("chi2", m.chi2);
}

/// McNemar's test of paired right/wrong answers: b and c as above, n pairs in all (b + c ≤ n). The three forms share n
/// and effect = (b − c)/n, the difference of the accuracies, ON − OFF, a fraction of 1. Pairs are taken as independent:
/// several seeds of one prompt are not, and make p too small (the bootstrap by prompt does not have that fault).
/// - exact: statistic min(b, c), p = min(1, 2 P(X ≤ min(b, c))), X binomial(b + c, ½); p = 1 if b + c = 0.
/// - mid_p: exact p minus P(X = b); 1 − ½ P(X = b) if b = c (Fagerland, Lydersen & Laake, 2013); 1 if b + c = 0.
/// - chi2: statistic max(0, |b − c| − 1)²/(b + c), 1 degree of freedom (Edwards' correction); null if b + c = 0.
/// min_detectable_effect, of all three: (z₀.₉₇₅ + z₀.₈) √(b + c)/n, the accuracy difference that 80 % power sees at this
/// number of discordant pairs; null if there are none.
/// Negative counts, or b + c > n, give nulls with a reason.
McNemarResult mcnemar(std::int64_t b, std::int64_t c, std::int64_t n);

enum class Adjustment { bonferroni, holm, benjamini_hochberg };
template <>
struct EnumNames<Adjustment> {
  static constexpr std::string_view what = "adjustment";
  static constexpr std::array<std::pair<Adjustment, std::string_view>, 3> values{
      {{Adjustment::bonferroni, "bonferroni"},
       {Adjustment::holm, "holm"},
       {Adjustment::benjamini_hochberg, "benjamini-hochberg"}}};
};

struct AdjustedP {
  std::vector<std::optional<double>> p;  ///< in the order given, capped at 1; null where the input was left out
  std::int64_t m = 0;                    ///< p-values that took part
};

/// Adjusts p-values for m tests, m being those that are numbers in [0, 1]: null, NaN and anything else is left out and
/// stays null. With p₍₁₎ ≤ … ≤ p₍ₘ₎: Bonferroni m p; Holm (1979) max over j ≤ i of (m − j + 1) p₍ⱼ₎; Benjamini–Hochberg
/// (1995) min over j ≥ i of m p₍ⱼ₎/j. The last gives runs of equal values; that is the procedure, not a defect.
AdjustedP adjust(std::span<const std::optional<double>> p, Adjustment method);

/// Adjusts the tests' p in place: p_adjusted, adjustment (with m) and family are set on each. No null pointers.
void adjust_family(std::span<TestResult* const> tests, Adjustment method, std::string_view family);

/// The same for tests that stand in a report already: each is the JSON of a TestResult, adjusted where it is.
void adjust_family(std::span<Json* const> tests, Adjustment method, std::string_view family);

}  // namespace kvdiv
