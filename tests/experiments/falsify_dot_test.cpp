#include "kvdiv/experiments/falsify_dot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"

namespace kvdiv {
namespace {

// Sampling noise of a column is about 1/√trials: 1.6 % here.
const Json& measured() {
  static const Json out = [] {
    DotParams params;
    params.lengths = {16, 32, 64, 128, 256, 512, 1024};
    params.head_dims = {64, 128};
    params.trials = 4000;
    params.weighted_trials = 6;
    return run_dot(params);
  }();
  return out;
}

double pct(const Json& row, const std::string& column) { return row.at(column + "_pct").get<double>(); }
double theory(const Json& row, const std::string& column) { return row.at(column + "_theory_pct").get<double>(); }

void expect_finite(const Json& value, const std::string& where) {
  if (value.is_structured())
    for (const auto& [key, item] : value.items()) expect_finite(item, where + "." + key);
  else if (value.is_number())
    EXPECT_TRUE(std::isfinite(value.get<double>())) << where;
  else
    EXPECT_TRUE(value.is_string()) << where;
}

TEST(FalsifyDot, RowsAreFlatFiniteAndOnePerLength) {
  const Json& out = measured();
  expect_finite(out, "dot");
  EXPECT_EQ(out.at("dot").size(), 7u);
  EXPECT_EQ(out.at("dot_columns").size(), 7u * 13);
  EXPECT_EQ(out.at("weighted_sum").size(), 7u * 2);
  EXPECT_EQ(out.at("weighted_sum_columns").size(), 7u * 2 * 13);
  EXPECT_EQ(out.at("dot_over_lengths").size(), 13u);
  for (const auto& [name, rows] : out.items()) {
    if (!rows.is_array()) continue;
    for (const Json& row : rows)
      for (const auto& [key, value] : row.items()) EXPECT_TRUE(value.is_primitive()) << name << "." << key;
  }
}

TEST(FalsifyDot, PublishedFigureIsThreeRoundings) {
  EXPECT_NEAR(measured().at("closed_form").at("one_rounding_pct").get<double>(), 0.0208, 0.0001);
  EXPECT_NEAR(measured().at("closed_form").at("operands_and_stored_pct").get<double>(), 0.0360, 0.0001);
  for (const Json& row : measured().at("dot")) {
    EXPECT_NEAR(pct(row, "operands_and_stored"), 0.036, 0.002) << row.dump();
    EXPECT_NEAR(pct(row, "operands"), 0.0294, 0.0016) << row.dump();
    EXPECT_NEAR(pct(row, "result"), 0.0207, 0.0011) << row.dump();
    for (const char* column : {"operands", "result", "operands_and_stored"})
      EXPECT_NEAR(pct(row, column), theory(row, column), 0.055 * theory(row, column)) << column;
  }
}

TEST(FalsifyDot, OperandRoundingIsFlatAndAccumulationGrows) {
  std::map<std::string, Json> by_column;
  for (const Json& row : measured().at("dot_over_lengths")) by_column[row.at("column")] = row;
  for (const char* column : {"operands", "result", "operands_and_stored"}) {
    EXPECT_LT(by_column.at(column).at("max_over_min"), 1.1) << column;
    EXPECT_NEAR(by_column.at(column).at("growth_exponent").get<double>(), 0.0, 0.02) << column;
  }
  for (const char* column : {"sequential_float16", "sequential_float32"})
    EXPECT_NEAR(by_column.at(column).at("growth_exponent").get<double>(), 0.5, 0.04) << column;
  EXPECT_NEAR(by_column.at("kahan_float16").at("growth_exponent").get<double>(), 0.0, 0.03);
}

// Two-sided: a naive sum must be at least so bad, a compensated one at most so bad.
void expect_between(const Json& row, const std::string& column, double low, double high) {
  EXPECT_GE(pct(row, column), low) << column << " " << row.dump();
  EXPECT_LE(pct(row, column), high) << column << " " << row.dump();
}

void expect_accumulation_bounds(const Json& row) {
  for (const auto& [accumulator, name] : EnumNames<Accumulator>::values)
    for (const auto& [order, order_name] : EnumNames<SumOrder>::values) {
      const std::string column = json_key(order_name) + "_" + std::string(name);
      expect_between(row, column, 0.8 * theory(row, column), 1.25 * theory(row, column));
    }
  const double n = row.at("length").get<double>(), random_walk = 0.0147 * std::sqrt(n);  // r √(n/2)
  expect_between(row, "sequential_float16", 0.8 * random_walk, 1.25 * random_walk);
  expect_between(row, "sequential_float32", 0.6 * random_walk / 8192, 1.25 * random_walk / 8192);
  expect_between(row, "kahan_float16", 0.026, 0.036);
  expect_between(row, "kahan_float32", 3.0e-6, 4.2e-6);
  expect_between(row, "pairwise_float16", 0.041, 0.09);
}

TEST(FalsifyDot, AccumulationIsAsBadAsTheRandomWalkAndNoWorse) {
  for (const Json& row : measured().at("dot")) expect_accumulation_bounds(row);
  for (const Json& row : measured().at("weighted_sum")) expect_accumulation_bounds(row);
}

TEST(FalsifyDot, SequentialFp16IsTheKnownSize) {
  const std::map<int, double> known{{16, 0.06}, {128, 0.165}, {1024, 0.48}};
  for (const Json& row : measured().at("dot")) {
    const auto it = known.find(row.at("length").get<int>());
    if (it == known.end()) continue;
    EXPECT_NEAR(pct(row, "sequential_float16"), it->second, 0.08 * it->second);
  }
}

TEST(FalsifyDot, WeightedSumHasTheSameThreeCauses) {
  for (const Json& row : measured().at("weighted_sum")) {
    expect_between(row, "operands", 0.026, 0.033);
    expect_between(row, "result", 0.019, 0.023);
    expect_between(row, "operands_and_stored", 0.033, 0.039);
    EXPECT_FALSE(row.contains("operands_theory_pct"));
  }
}

// The smallest orders, written down again without the experiment's code: no column can stand for another one.
TEST(FalsifyDot, ColumnsAreWhatTheirNamesSay) {
  DotParams params;
  params.lengths = {5};
  params.head_dims = {};
  params.trials = 40;
  const Json row = run_dot(params).at("dot").at(0);
  std::map<std::string, double> error;
  double reference_squares = 0.0, half_squares = 0.0;
  const auto half = [](double x) { return round_to_half(x); };
  for (std::uint32_t trial = 0; trial < 40; ++trial) {
    std::vector<float> q(5), k(5);
    fill_standard_normals(q, {0, 5, trial});
    fill_standard_normals(k, {1, 5, trial});
    double reference = 0.0, of_halves = 0.0, sequential = 0.0;
    std::vector<double> p;
    for (std::size_t i = 0; i < 5; ++i) {
      reference += static_cast<double>(q[i]) * k[i];
      p.push_back(half(q[i]) * half(k[i]));
      of_halves += p[i];
      sequential = half(sequential + p[i]);
    }
    const double left = half(half(p[0]) + half(p[1])), right = half(half(p[3]) + half(p[4]));
    const double pairwise = half(left + half(half(p[2]) + right));
    float single = 0.0f;
    for (const double x : p) single += static_cast<float>(x);
    error["operands"] += std::pow(of_halves - reference, 2);
    error["result"] += std::pow(half(reference) - reference, 2);
    error["operands_and_stored"] += std::pow(half(of_halves) - reference, 2);
    error["sequential_float16"] += std::pow(sequential - of_halves, 2);
    error["pairwise_float16"] += std::pow(pairwise - of_halves, 2);
    error["sequential_float32"] += std::pow(single - of_halves, 2);
    reference_squares += reference * reference;
    half_squares += of_halves * of_halves;
  }
  for (const auto& [column, squares] : error) {
    const double by = column.find("float") == std::string::npos ? reference_squares : half_squares;
    EXPECT_NEAR(pct(row, column), 100.0 * std::sqrt(squares / by), 1e-9 * pct(row, column)) << column;
  }
}

TEST(FalsifyDot, IntervalsHoldTheEstimateAndHaveTheWidthOfItsNoise) {
  for (const Json& row : measured().at("dot_columns")) {
    const double value = row.at("error_pct"), low = row.at("ci_low_pct"), high = row.at("ci_high_pct");
    const double std = row.at("std_pct");
    EXPECT_LT(low, value);
    EXPECT_GT(high, value);
    EXPECT_NEAR(high - low, 3.92 * std, 0.12 * 3.92 * std);
    // 1/√trials for normal errors; the few rounded sums of FP32 at 16 terms have heavier tails.
    EXPECT_GT(std / value, 0.7 / std::sqrt(4000.0)) << row.dump();
    EXPECT_LT(std / value, 1.8 / std::sqrt(4000.0)) << row.dump();
  }
}

TEST(FalsifyDot, SameNumbersEveryTimeAndForEveryListOfLengths) {
  DotParams params;
  params.lengths = {16, 48};
  params.head_dims = {8};
  params.trials = 20;
  params.weighted_trials = 3;
  const Json both = run_dot(params);
  EXPECT_EQ(both.dump(), run_dot(params).dump());
  params.lengths = {48};
  const Json alone = run_dot(params);
  EXPECT_EQ(alone.at("dot").at(0).dump(), both.at("dot").at(1).dump());
  EXPECT_EQ(alone.at("weighted_sum").at(0).dump(), both.at("weighted_sum").at(1).dump());
  EXPECT_TRUE(alone.at("dot_over_lengths").empty());
}

TEST(FalsifyDot, RefusesWhatCannotBeMeasured) {
  const auto refused = [](auto change) {
    DotParams params;
    change(params);
    EXPECT_THROW(run_dot(params), Error);
  };
  refused([](DotParams& p) { p.trials = 1; });
  refused([](DotParams& p) { p.weighted_trials = 0; });
  refused([](DotParams& p) { p.lengths = {16, 0}; });
  refused([](DotParams& p) { p.head_dims = {-1}; });
}

}  // namespace
}  // namespace kvdiv
