#include "kvdiv/experiments/falsify_propagation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"

namespace kvdiv {
namespace {

PropagationParams small() {
  PropagationParams params;
  params.steps = {1, 2, 4, 8, 16};
  params.length = 12;
  params.dim = 32;
  params.trials = 8;
  return params;
}

const Json& measured() {
  static const Json out = run_propagation(PropagationParams{});
  return out;
}

const Json& growth_of(const std::string& arithmetic, const std::string& error) {
  for (const Json& row : measured().at("growth"))
    if (row.at("arithmetic") == arithmetic && row.at("error") == error && row.at("from_steps") == 1 &&
        row.at("to_steps") == 64)
      return row;
  fail(ErrorKind::internal, "no row for {}, {}", arithmetic, error);
}

TEST(FalsifyPropagation, RowsAreFlatFiniteAndOnePerNumberOfSteps) {
  ASSERT_EQ(measured().at("propagation").size(), PropagationParams{}.steps.size());
  EXPECT_EQ(measured().at("growth").size(), 2u * 2 * 3);
  for (const auto& [name, rows] : measured().items())
    for (const Json& row : rows)
      for (const auto& [key, value] : row.items()) {
        const bool finite = value.is_number() && std::isfinite(value.get<double>());
        EXPECT_TRUE(finite || value.is_string()) << name << "." << key;
      }
}

TEST(FalsifyPropagation, ErrorGrowsWithEveryFewSteps) {
  const Json& rows = measured().at("propagation");
  for (const std::string prefix : {"", "float16_accumulate_"}) {
    for (std::size_t i = 2; i < rows.size(); ++i)  // over two entries, since one median may fall by its noise
      EXPECT_GT(rows[i].at(prefix + "rel_err_pct"), rows[i - 2].at(prefix + "rel_err_pct")) << prefix << i;
    for (const Json& row : rows) {
      EXPECT_LE(row.at(prefix + "rel_err_ci_low_pct"), row.at(prefix + "rel_err_pct"));
      EXPECT_GE(row.at(prefix + "rel_err_ci_high_pct"), row.at(prefix + "rel_err_pct"));
    }
  }
}

// One step cannot lose less than its one rounding of the residual sum (0.0207 %), nor with FP32 accumulators more than
// twice that. FP16 accumulators over 64 terms lose 0.12 % of every product.
TEST(FalsifyPropagation, SizesAreThoseOfTheRoundings) {
  const Json& rows = measured().at("propagation");
  const double first = rows.front().at("rel_err_pct"), last = rows.back().at("rel_err_pct");
  EXPECT_GT(first, 0.0207);
  EXPECT_LT(first, 0.0414);
  EXPECT_GT(last, 3.0 * first);
  EXPECT_LT(last, 8.0 * first);  // √64
  const double first_accumulate = rows.front().at("float16_accumulate_rel_err_pct");
  EXPECT_GT(first_accumulate, 2.0 * first);
  EXPECT_LT(first_accumulate, 5.0 * first);
  EXPECT_GT(rows.back().at("state_rms"), 3.0);
  EXPECT_LT(rows.back().at("state_rms"), 20.0);
}

// The state grows, so its relative error grows more slowly than a random walk and its absolute error faster.
TEST(FalsifyPropagation, GrowthIsBetweenNoneAndLinear) {
  const auto expect_within = [](const Json& row, double low, double high) {
    EXPECT_GT(row.at("ci_low"), low) << row.dump();
    EXPECT_LT(row.at("ci_high"), high) << row.dump();
    EXPECT_LE(row.at("ci_low"), row.at("exponent"));
    EXPECT_GE(row.at("ci_high"), row.at("exponent"));
  };
  expect_within(growth_of("float16", "relative"), 0.25, 0.5);
  expect_within(growth_of("float16", "absolute"), 0.6, 1.0);
  expect_within(growth_of("float16_accumulate", "relative"), 0.1, 0.5);
  expect_within(growth_of("float16_accumulate", "absolute"), 0.6, 1.0);
}

TEST(FalsifyPropagation, Float64AgainstItselfIsExactlyZero) {
  const auto arms = propagate(small(), {StepArithmetic::float64, StepArithmetic::float16}, 0);
  for (std::size_t i = 0; i < small().steps.size(); ++i) {
    EXPECT_EQ(arms[0].rel_err[i], 0.0);
    EXPECT_EQ(arms[0].error_rms[i], 0.0);
    EXPECT_GT(arms[1].rel_err[i], 0.0);
    EXPECT_EQ(arms[0].state_rms[i], arms[1].state_rms[i]);
  }
}

// The block of the header, written down again row by row. `half`: every result is rounded to FP16, sums are FP32.
using Rows = std::vector<std::vector<double>>;
constexpr std::size_t kRows = 5, kDim = 8;

double naive_dot(const std::vector<double>& a, const std::vector<double>& b, bool half) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
    if (half) sum = static_cast<double>(static_cast<float>(sum));
  }
  return half ? round_to_half(sum) : sum;
}

std::vector<double> naive_times(const std::vector<double>& a, const Rows& w, bool half) {
  std::vector<double> out;
  for (std::size_t j = 0; j < w[0].size(); ++j) {
    std::vector<double> column;
    for (const auto& row : w) column.push_back(row[j]);
    out.push_back(naive_dot(a, column, half));
  }
  return out;
}

void naive_step(Rows& x, const std::vector<Rows>& w, bool half) {
  const auto store = [&](double value) { return half ? round_to_half(value) : value; };
  Rows q, k, v;
  for (const auto& row : x) {
    std::vector<double> h = row;
    const double squares = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
    for (double& value : h) value = store(value / std::sqrt(squares / kDim + 1e-6));
    q.push_back(naive_times(h, w[0], half));
    k.push_back(naive_times(h, w[1], half));
    v.push_back(naive_times(h, w[2], half));
    std::vector<double> weights;
    double sum = 0.0;
    for (const auto& key : k) {  // those so far: causal
      weights.push_back(std::exp(store(naive_dot(q.back(), key, half) / std::sqrt(8.0))));
      sum += weights.back();
    }
    for (double& weight : weights) weight = store(weight / sum);
    const auto branch = naive_times(naive_times(weights, v, half), w[3], half);
    for (std::size_t j = 0; j < kDim; ++j) x[v.size() - 1][j] = store(x[v.size() - 1][j] + branch[j]);
  }
}

Rows drawn_halves(std::size_t rows, double scale, NormalPlace place) {
  std::vector<float> values(rows * kDim);
  fill_standard_normals(values, place);
  Rows out(rows);
  for (std::size_t i = 0; i < values.size(); ++i) out[i / kDim].push_back(round_to_half(values[i] * scale));
  return out;
}

TEST(FalsifyPropagation, EveryResultIsRoundedAndNothingElse) {
  PropagationParams params;
  params.steps = {1, 3};
  params.length = kRows;
  params.dim = kDim;
  Rows half = drawn_halves(kRows, 1.0, {16, 0, 3}), exact = half;
  const auto found = propagate(params, {StepArithmetic::float16}, 3).front();
  for (std::uint32_t number = 0; number < 3; ++number) {
    std::vector<Rows> w;
    for (std::uint32_t which = 0; which < 4; ++which)
      w.push_back(drawn_halves(kDim, 1.0 / std::sqrt(8.0), {17, 4 * number + which, 3}));
    naive_step(half, w, true);
    naive_step(exact, w, false);
    if (number == 1) continue;
    double error = 0.0, state = 0.0;
    for (std::size_t i = 0; i < kRows; ++i)
      for (std::size_t j = 0; j < kDim; ++j) {
        error += std::pow(half[i][j] - exact[i][j], 2);
        state += exact[i][j] * exact[i][j];
      }
    EXPECT_NEAR(found.rel_err[number / 2], std::sqrt(error / state), 1e-12);
    EXPECT_NEAR(found.state_rms[number / 2], std::sqrt(state / (kRows * kDim)), 1e-12);
  }
}

TEST(FalsifyPropagation, SameNumbersEveryTimeAndForEveryListOfSteps) {
  PropagationParams params = small();
  const Json first = run_propagation(params);
  EXPECT_EQ(first.dump(), run_propagation(params).dump());
  params.steps = {4, 2, 2};  // put in order, once each
  const Json fewer = run_propagation(params);
  ASSERT_EQ(fewer.at("propagation").size(), 2u);
  EXPECT_EQ(fewer.at("propagation").at(0).dump(), first.at("propagation").at(1).dump());
  EXPECT_EQ(fewer.at("propagation").at(1).dump(), first.at("propagation").at(2).dump());
  EXPECT_EQ(fewer.at("growth").size(), 4u);  // halves of one entry have no slope
}

TEST(FalsifyPropagation, RefusesWhatCannotBeMeasured) {
  const auto refused = [](auto change) {
    PropagationParams params = small();
    change(params);
    EXPECT_THROW(run_propagation(params), Error);
  };
  refused([](PropagationParams& p) { p.steps = {3, 3}; });
  refused([](PropagationParams& p) { p.steps = {0, 1}; });
  refused([](PropagationParams& p) { p.length = 0; });
  refused([](PropagationParams& p) { p.dim = 0; });
  refused([](PropagationParams& p) { p.trials = 1; });
}

}  // namespace
}  // namespace kvdiv
