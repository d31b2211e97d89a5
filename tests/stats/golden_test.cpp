// kvdiv's tests and intervals against SciPy and statsmodels: tests/golden/stats/golden.json, which
// scripts/make_stats_golden.py wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/correlation.h"
#include "kvdiv/stats/hypothesis.h"
#include "kvdiv/stats/regression.h"
#include "kvdiv/stats/two_sample.h"

namespace kvdiv {
namespace {

using Values = std::vector<double>;
constexpr double kTolerance = 1e-10;  // relative

Values values_of(const Json& args, const char* key) { return args.at(key).get<Values>(); }

Json run_mcnemar(const Json& a) {
  const auto get = [&](const char* key) { return a.at(key).get<std::int64_t>(); };
  return to_json_value(mcnemar(get("b"), get("c"), get("n")));
}

Json run_adjust(const Json& a) {
  std::vector<std::optional<double>> p;
  from_json_value(a.at("p"), p, "p");
  const AdjustedP adjusted = adjust(p, *find_enum<Adjustment>(a.at("method").get<std::string>()));
  return {{"m", adjusted.m}, {"p", to_json_value(adjusted.p)}};
}

Json run_mann_whitney(const Json& a) {
  const auto method = find_enum<RankMethod>(a.at("method").get<std::string>());
  return to_json_value(mann_whitney(values_of(a, "x"), values_of(a, "y"), method.value()));
}

Json run_partial(const Json& a) {
  const auto controls = a.at("controls").get<std::vector<Values>>();
  const std::vector<std::span<const double>> spans(controls.begin(), controls.end());
  return to_json_value(partial_correlation(values_of(a, "x"), values_of(a, "y"), spans));
}

template <class Interval>
Json run_interval(const Json& a, Interval interval) {
  const StatOptions options{a.at("n_resamples").get<int>(), a.at("seed").get<std::uint64_t>()};
  return to_json_value(interval(values_of(a, "values"), a.at("clusters").get<std::vector<std::int32_t>>(), options));
}

using Run = std::function<Json(const Json& args)>;
const std::map<std::string, Run>& functions() {
  const auto of_xy = [](auto test) {
    return [test](const Json& a) { return to_json_value(test(values_of(a, "x"), values_of(a, "y"))); };
  };
  static const std::map<std::string, Run> table{
      {"mcnemar", run_mcnemar},
      {"adjust", run_adjust},
      {"welch_t", of_xy(welch_t)},
      {"mann_whitney", run_mann_whitney},
      {"equivalence_welch",
       [](const Json& a) {
         return to_json_value(equivalence_welch(values_of(a, "x"), values_of(a, "y"), a.at("margin").get<double>()));
       }},
      {"equivalence_mean",
       [](const Json& a) { return to_json_value(equivalence_mean(values_of(a, "x"), a.at("margin").get<double>())); }},
      {"pearson", of_xy(pearson)},
      {"spearman", of_xy(spearman)},
      {"partial_correlation", run_partial},
      {"fit_line", of_xy(fit_line)},
      {"mean_interval_bca", [](const Json& a) { return run_interval(a, mean_interval_bca); }},
      {"median_interval", [](const Json& a) { return run_interval(a, median_interval); }},
  };
  return table;
}

/// The largest relative deviation; a difference of any other kind fails the test.
double deviation(const Json& found, const Json& expected, const std::string& where) {
  double largest = 0.0;
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      EXPECT_TRUE(found.contains(key)) << where << " " << key;
      if (found.contains(key)) largest = std::max(largest, deviation(found[key], value, where + " " + key));
    }
  } else if (expected.is_array()) {
    EXPECT_EQ(found.size(), expected.size()) << where;
    for (std::size_t i = 0; i < expected.size() && i < found.size(); ++i)
      largest = std::max(largest, deviation(found[i], expected[i], where + " " + std::to_string(i)));
  } else if (expected.is_number() && found.is_number()) {
    const double e = expected.get<double>(), f = found.get<double>();
    largest = e == f ? 0.0 : std::abs(f - e) / std::abs(e);
    EXPECT_LE(largest, kTolerance) << where << ": found " << found << ", expected " << expected;
  } else {
    EXPECT_EQ(found, expected) << where;
  }
  return largest;
}

TEST(StatsGolden, AgreesWithSciPyAndStatsmodels) {
  std::ifstream file(KVDIV_TEST_ROOT "/tests/golden/stats/golden.json");
  ASSERT_TRUE(file);
  const Json golden = Json::parse(file);
  std::map<std::string, double> worst;
  double smallest_p = 1.0;
  for (const Json& c : golden.at("cases")) {
    const auto function = c.at("function").get<std::string>();
    ASSERT_TRUE(functions().contains(function)) << function;
    const Json found = functions().at(function)(c.at("args"));
    const double d = deviation(found, c.at("expected"), c.at("name").get<std::string>());
    worst[function] = std::max(worst[function], d);
    if (c["expected"].contains("p") && c["expected"]["p"].is_number())
      smallest_p = std::min(smallest_p, c["expected"]["p"].get<double>());
  }
  EXPECT_EQ(worst.size(), functions().size());  // every function has cases
  EXPECT_LT(smallest_p, 1e-60);
  for (const auto& [function, d] : worst) RecordProperty(function, std::to_string(d / kTolerance));
}

}  // namespace
}  // namespace kvdiv
