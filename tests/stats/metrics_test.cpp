#include "kvdiv/stats/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"

namespace kvdiv {
namespace {

using Row = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Row logs(Row probabilities) {
  for (double& p : probabilities) p = std::log(p);
  return probabilities;
}

/// The generator of golden/make_metrics_golden.py.
class Lcg {
 public:
  explicit Lcg(std::uint64_t seed) : state_(seed) {}
  double uniform() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

std::pair<Row, Row> golden_rows(const Json& c) {
  Lcg random(c["seed"].get<std::uint64_t>());
  const double spread = c["spread"], scale = c["scale"], shift = c["shift"];
  Row on, off;
  for (int i = 0; i < c["n"].get<int>(); ++i) {
    const double x = (random.uniform() - 0.5) * spread;
    on.push_back(x);
    off.push_back(x + ((random.uniform() - 0.5) * 2.0 * scale + shift));
  }
  return {on, off};
}

/// Relative, above a floor where the doubles that go in are no longer known well enough to matter to anyone.
double relative_error(double found, double expected) {
  return std::abs(found - expected) / std::max(std::abs(expected), 1e-30);
}

Row random_row(std::mt19937_64& random, std::size_t n, double scale) {
  std::normal_distribution<double> normal(0.0, scale);
  Row row(n);
  for (double& x : row) x = normal(random);
  return row;
}

TEST(Metrics, AgreeWithHundredDigitArithmeticAtEveryScale) {
  std::ifstream file(KVDIV_TEST_ROOT "/tests/stats/golden/metrics.json");
  ASSERT_TRUE(file);
  std::map<double, double> worst;  // by size of the logit differences
  for (const Json& c : Json::parse(file)) {
    const auto [on, off] = golden_rows(c);
    ASSERT_EQ(on.back(), c["check"][0].get<double>()) << c;
    ASSERT_EQ(off.back(), c["check"][1].get<double>()) << c;
    const StepMetrics m = compare_logits(on, off);
    for (const auto& [found, key] :
         {std::pair{m.kl_on_off_nats, "kl_on_off"}, {m.kl_off_on_nats, "kl_off_on"}, {m.js_nats, "js"}}) {
      const double error = relative_error(found, c[key].get<double>());
      EXPECT_LT(error, 1e-13) << key << " " << found << "\n" << c;
      double& entry = worst[c["scale"].get<double>()];
      entry = std::max(entry, error);
    }
  }
  for (const auto& [scale, error] : worst)
    RecordProperty(fmt::format("worst_relative_error_at_{:g}", scale), fmt::format("{:.2g}", error));
}

TEST(Metrics, IdenticalRowsGiveExactlyZero) {
  const StepMetrics m = compare_logits(Row{1, 2, 3}, Row{1, 2, 3});
  EXPECT_EQ(m.kl_on_off_nats, 0.0);
  EXPECT_EQ(m.kl_off_on_nats, 0.0);
  EXPECT_EQ(m.js_nats, 0.0);
  EXPECT_EQ(m.max_abs_dlogit, 0.0);
  EXPECT_TRUE(m.bit_equal);
  EXPECT_TRUE(m.top1_equal);
  EXPECT_EQ(m.n_nonfinite, 0);
}

TEST(Metrics, PublishedThreeTokenCase) {
  const StepMetrics m = compare_logits(Row{8, 10, 6}, Row{1, 2, 3});
  EXPECT_NEAR(m.kl_on_off_nats, 1.067983, 5e-7);
  EXPECT_NEAR(m.kl_off_on_nats, 2.151561, 5e-7);
  EXPECT_NEAR(m.js_nats, 0.291545, 5e-7);
  EXPECT_EQ(m.max_abs_dlogit, 8.0);
  EXPECT_FALSE(m.bit_equal);
  EXPECT_FALSE(m.top1_equal);
  EXPECT_EQ(m.top1_on, 1);
  EXPECT_EQ(m.top1_off, 2);
  EXPECT_EQ(m.margin_on, 2.0);
  EXPECT_EQ(m.margin_off, 1.0);
}

TEST(Metrics, MaskedInBothIsFinite) {
  const StepMetrics same = compare_logits(logs({.5, .5, 0}), logs({.5, .5, 0}));
  EXPECT_EQ(same.kl_on_off_nats, 0.0);
  EXPECT_EQ(same.js_nats, 0.0);
  EXPECT_EQ(same.n_nonfinite, 2);

  const StepMetrics masked = compare_logits(Row{8, -kInf, 10, 6}, Row{1, -kInf, 2, 3});
  const StepMetrics plain = compare_logits(Row{8, 10, 6}, Row{1, 2, 3});
  EXPECT_DOUBLE_EQ(masked.kl_on_off_nats, plain.kl_on_off_nats);
  EXPECT_DOUBLE_EQ(masked.kl_off_on_nats, plain.kl_off_on_nats);
  EXPECT_DOUBLE_EQ(masked.js_nats, plain.js_nats);
  EXPECT_EQ(masked.max_abs_dlogit, 8.0);
  EXPECT_EQ(masked.top1_on, 2);
}

TEST(Metrics, ZeroAgainstPositiveIsInfiniteInThatDirectionOnly) {
  const StepMetrics m = compare_logits(logs({.3, .3, .4}), logs({.5, .5, 0}));
  EXPECT_EQ(m.kl_on_off_nats, kInf);
  EXPECT_NEAR(m.kl_off_on_nats, std::log(0.5 / 0.3), 1e-15);
  EXPECT_NEAR(m.js_nats, 0.163897, 5e-7);
  EXPECT_EQ(m.max_abs_dlogit, kInf);
  const StepMetrics swapped = compare_logits(logs({.5, .5, 0}), logs({.3, .3, .4}));
  EXPECT_EQ(swapped.kl_off_on_nats, kInf);
  EXPECT_DOUBLE_EQ(swapped.kl_on_off_nats, m.kl_off_on_nats);
  EXPECT_DOUBLE_EQ(swapped.js_nats, m.js_nats);
}

TEST(Metrics, DisjointSupportsAreLnTwoApart) {
  const StepMetrics m = compare_logits(Row{0, -kInf}, Row{-kInf, 0});
  EXPECT_EQ(m.kl_on_off_nats, kInf);
  EXPECT_EQ(m.kl_off_on_nats, kInf);
  EXPECT_DOUBLE_EQ(m.js_nats, std::numbers::ln2);
}

TEST(Metrics, AProbabilityTooSmallForADoubleIsNotZero) {
  const StepMetrics m = compare_logits(Row{0, 0}, Row{0, -1000});  // q = (1, e⁻¹⁰⁰⁰): finite logits, finite KL
  EXPECT_NEAR(m.kl_on_off_nats, 500.0 - std::numbers::ln2, 1e-12);
  EXPECT_NEAR(m.kl_off_on_nats, std::numbers::ln2, 1e-15);
}

TEST(Metrics, NanAndPlusInfinityAreNeverADistribution) {
  for (const double bad : {kNan, kInf}) {
    for (const auto& [on, off] : {std::pair{Row{1, bad, 3}, Row{1, 2, 3}}, {Row{1, 2, 3}, Row{bad, 2, 3}}}) {
      const StepMetrics m = compare_logits(on, off);
      EXPECT_TRUE(std::isnan(m.kl_on_off_nats));
      EXPECT_TRUE(std::isnan(m.kl_off_on_nats));
      EXPECT_TRUE(std::isnan(m.js_nats));
      EXPECT_TRUE(std::isnan(m.max_abs_dlogit));
      EXPECT_FALSE(m.top1_equal);
      EXPECT_EQ(m.n_nonfinite, 1);
    }
  }
  const StepMetrics same = compare_logits(Row{kNan, 1}, Row{kNan, 1});
  EXPECT_TRUE(same.bit_equal);
  EXPECT_FALSE(same.top1_equal);
  EXPECT_EQ(same.top1_on, 1);
  EXPECT_EQ(same.n_nonfinite, 2);
  const StepMetrics all_nan = compare_logits(Row{kNan, kNan}, Row{1, 2});
  EXPECT_EQ(all_nan.top1_on, -1);
  EXPECT_TRUE(std::isnan(all_nan.margin_on));
  const StepMetrics dead = compare_logits(Row{-kInf, -kInf}, Row{-kInf, -kInf});
  EXPECT_TRUE(std::isnan(dead.kl_on_off_nats));
  EXPECT_FALSE(dead.top1_equal);
  EXPECT_EQ(dead.n_nonfinite, 4);
}

TEST(Metrics, SignOfZeroIsABitNotADifference) {
  const StepMetrics m = compare_logits(Row{0.0, 1.0}, Row{-0.0, 1.0});
  EXPECT_FALSE(m.bit_equal);
  EXPECT_EQ(m.kl_on_off_nats, 0.0);
  EXPECT_EQ(m.js_nats, 0.0);
  EXPECT_EQ(m.max_abs_dlogit, 0.0);
  EXPECT_TRUE(compare_logits(Row{0.0, -0.0}, Row{0.0, -0.0}).tie_on);
}

TEST(Metrics, TiesGoToTheLowestIdAndAreFlagged) {
  Row on(32000, 0.0), off(32000, 0.0);
  on[7] = on[30000] = 5.0;
  off[7] = 5.0;
  off[30000] = std::nextafter(5.0, 6.0);
  const StepMetrics m = compare_logits(on, off);
  EXPECT_EQ(m.top1_on, 7);
  EXPECT_TRUE(m.tie_on);
  EXPECT_EQ(m.margin_on, 0.0);
  EXPECT_EQ(m.top1_off, 30000);
  EXPECT_FALSE(m.tie_off);
  EXPECT_EQ(m.margin_off, std::nextafter(5.0, 6.0) - 5.0);
  EXPECT_FALSE(m.top1_equal);
  EXPECT_FALSE(compare_logits(Row{1, 1, 2}, Row{1, 1, 2}).tie_on);  // equal, but not the largest
  EXPECT_TRUE(compare_logits(Row{2, 1, 2, 0, 2}, Row{2, 1, 2, 0, 2}).tie_on);
}

TEST(Metrics, MarginWithoutASecondTokenIsInfinite) {
  EXPECT_EQ(compare_logits(Row{3}, Row{4}).margin_on, kInf);
  EXPECT_EQ(compare_logits(Row{3}, Row{4}).kl_on_off_nats, 0.0);
  EXPECT_EQ(compare_logits(Row{3, -kInf}, Row{4, -kInf}).margin_off, kInf);
  EXPECT_EQ(compare_logits(Row{3, 1, 2}, Row{1, 2, 3}).margin_on, 1.0);
}

TEST(Metrics, AConstantShiftOfAllLogitsIsNoDivergence) {
  for (const double shift : {1e-9, 0.25, 3.0, 1000.0, -40000.0}) {
    const Row on{1, 2, 3, -4}, off{1 + shift, 2 + shift, 3 + shift, -4 + shift};
    const StepMetrics m = compare_logits(on, off);
    const double rounding = 1e-16 * std::max(4.0, std::abs(shift));  // of `off` itself
    EXPECT_LE(m.kl_on_off_nats, 4 * rounding * rounding) << shift;
    EXPECT_LE(m.js_nats, 4 * rounding * rounding) << shift;
    EXPECT_EQ(m.top1_equal, true);
  }
}

TEST(Metrics, KlIsPositiveAndWithinTheHoeffdingBound) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) {
    const double scale = std::pow(10.0, -13.0 + 0.035 * i);  // 1e-13 … 10
    const std::size_t n = 2 + i % 300;
    const Row on = random_row(random, n, 3.0);
    Row off = on;
    const Row noise = random_row(random, n, scale);
    for (std::size_t j = 0; j < n; ++j) off[j] += noise[j];
    const StepMetrics m = compare_logits(on, off);
    const double bound = kl_bound_from_dlogit(m.max_abs_dlogit) * (1 + 1e-12);
    for (const double kl : {m.kl_on_off_nats, m.kl_off_on_nats}) {
      EXPECT_GT(kl, 0.0) << scale;
      EXPECT_LE(kl, bound) << scale;
      // A floor as well, loose as it must be for 2 tokens: noise of this size is not lost in rounding.
      EXPECT_GE(kl, (scale < 0.1 ? 1e-7 : 1e-9) * bound) << scale << " " << n;
    }
    EXPECT_LE(m.js_nats, std::min(std::numbers::ln2, 0.5 * (m.kl_on_off_nats + m.kl_off_on_nats)));
    const StepMetrics swapped = compare_logits(off, on);
    EXPECT_NEAR(swapped.kl_on_off_nats, m.kl_off_on_nats, 1e-13 * m.kl_off_on_nats);
    EXPECT_NEAR(swapped.js_nats, m.js_nats, 1e-13 * m.js_nats);
  }
}

TEST(Metrics, HoeffdingBoundIsReached) {
  // p = (½, ½) and d = (δ, −δ): KL = ln cosh δ, which is δ²/2 − δ⁴/12 + …
  for (const double delta : {1e-10, 1e-5, 1e-2}) {
    const StepMetrics m = compare_logits(Row{0, 0}, Row{delta, -delta});
    EXPECT_NEAR(m.kl_on_off_nats / kl_bound_from_dlogit(delta), 1.0 - delta * delta / 6.0, 1e-8);
  }
  EXPECT_NEAR(kl_bound_from_dlogit(4.6), 10.58, 1e-12);
}

TEST(Metrics, OrderOfTheVocabularyDoesNotMatter) {
  std::mt19937_64 random(11);
  Row on = random_row(random, 5000, 4.0), off = on;
  for (double& x : off) x += 1e-3 * random_row(random, 1, 1.0)[0];
  const StepMetrics m = compare_logits(on, off);
  std::reverse(on.begin(), on.end());
  std::reverse(off.begin(), off.end());
  const StepMetrics r = compare_logits(on, off);
  EXPECT_NEAR(r.kl_on_off_nats, m.kl_on_off_nats, 1e-14 * m.kl_on_off_nats);
  EXPECT_EQ(r.margin_on, m.margin_on);
  EXPECT_EQ(r.top1_on, 4999 - m.top1_on);
}

TEST(Metrics, FiniteLogitsTooFarApartForADoubleAreNotGuessed) {
  const StepMetrics m = compare_logits(Row{1.5e308, 0}, Row{-1.5e308, 0});
  EXPECT_TRUE(std::isnan(m.kl_on_off_nats));
  EXPECT_FALSE(m.top1_equal);
}

TEST(Metrics, RowsOfDifferentVocabulariesAreRefused) {
  EXPECT_THROW(compare_logits(Row{1, 2}, Row{1}), Error);
  EXPECT_THROW(compare_logits(Row{}, Row{}), Error);
}

TEST(Metrics, RecordTakesEveryMetric) {
  StepRecord record;
  const StepMetrics m = compare_logits(Row{8, 10, 6, -kInf}, Row{1, 3, 3, -kInf});
  put_metrics(m, record);
  EXPECT_EQ(record.kl_on_off_nats, m.kl_on_off_nats);
  EXPECT_EQ(record.kl_off_on_nats, m.kl_off_on_nats);
  EXPECT_EQ(record.js_nats, m.js_nats);
  EXPECT_EQ(record.max_abs_dlogit, 7.0);
  EXPECT_FALSE(record.bit_equal);
  EXPECT_TRUE(record.top1_equal);
  EXPECT_EQ(record.margin_on, 2.0);
  EXPECT_EQ(record.margin_off, 0.0);
  EXPECT_FALSE(record.tie_on);
  EXPECT_TRUE(record.tie_off);
  EXPECT_EQ(record.n_nonfinite, 2);
}

/// A row that spans more than a double: no softmax, and never "no difference".
TEST(Metrics, LogitsBeyondTheRangeOfSumsAreRefused) {
  const std::vector<double> a{1e308, -1e308, 3.0}, b{1e308, -1e308, 4.0};
  const StepMetrics m = compare_logits(a, b);
  EXPECT_TRUE(std::isnan(m.kl_on_off_nats));
  EXPECT_TRUE(std::isnan(m.kl_off_on_nats));
  EXPECT_TRUE(std::isnan(m.js_nats));
  EXPECT_FALSE(m.top1_equal);
}

}  // namespace
}  // namespace kvdiv
