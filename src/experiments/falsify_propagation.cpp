#include "kvdiv/experiments/falsify_propagation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/regression.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

enum Purpose : std::uint32_t { kState = 16, kProjections };

struct Float64 {
  using Number = double;
  static double store(double x) { return x; }
  static double accumulate(double sum, double a, double b) { return sum + a * b; }
};

struct Float16 {
  using Number = float;
  static float store(double x) { return static_cast<float>(round_to_half(x)); }
  static float accumulate(float sum, float a, float b) { return sum + a * b; }  // the product of halves is exact
};

struct Float16Accumulate {
  using Number = double;  // of FP16 values; the sums are exact before their one rounding (see half_sums.cpp)
  static double store(double x) { return round_to_half(x); }
  static double accumulate(double sum, double a, double b) { return round_to_half(sum + a * b); }
};

/// Row-major.
template <class T>
struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<T> values;

  Matrix(std::size_t n_rows, std::size_t n_cols) : rows(n_rows), cols(n_cols), values(n_rows * n_cols) {}
  std::span<T> row(std::size_t i) { return std::span(values).subspan(i * cols, cols); }
  std::span<const T> row(std::size_t i) const { return std::span(values).subspan(i * cols, cols); }
};

/// [dim, dim] each: q, k, v, output. FP16 values, exact in every arm.
using Projections = std::array<Matrix<float>, 4>;

/// [rows, cols] = a [rows, inner] · b [inner, cols]. Every output is summed over `inner` in ascending order; the loop
/// over the outputs is inside only because they are independent and the processor can overlap them.
template <class A, class Right>
Matrix<typename A::Number> product(const Matrix<typename A::Number>& a, const Matrix<Right>& b) {
  Matrix<typename A::Number> out(a.rows, b.cols);
  for (std::size_t i = 0; i < a.rows; ++i) {
    const auto sums = out.row(i);
    for (std::size_t k = 0; k < a.cols; ++k) {
      const auto left = a.row(i)[k];
      const auto right = b.row(k);
      for (std::size_t j = 0; j < b.cols; ++j) sums[j] = A::accumulate(sums[j], left, right[j]);
    }
    for (auto& x : sums) x = A::store(x);
  }
  return out;
}

template <class T>
Matrix<T> transposed(const Matrix<T>& a) {
  Matrix<T> out(a.cols, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.cols; ++j) out.row(j)[i] = a.row(i)[j];
  return out;
}

template <class A>
Matrix<typename A::Number> normalised(const Matrix<typename A::Number>& x) {
  auto out = x;
  for (std::size_t i = 0; i < x.rows; ++i) {
    double squares = 0.0;
    for (const double value : x.row(i)) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + 1e-6);
    for (auto& value : out.row(i)) value = A::store(value * scale);
  }
  return out;
}

/// Scores to weights; row i sees the keys 0 … i. The weights of the others are 0: their products add nothing.
template <class A>
void causal_softmax(Matrix<typename A::Number>& scores, double scale) {
  std::vector<double> weights(scores.cols);
  for (std::size_t i = 0; i < scores.rows; ++i) {
    const auto row = scores.row(i);
    for (std::size_t j = 0; j <= i; ++j) weights[j] = A::store(row[j] * scale);
    const double largest = *std::max_element(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    double sum = 0.0;
    for (std::size_t j = 0; j <= i; ++j) sum += weights[j] = std::exp(weights[j] - largest);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j <= i ? A::store(weights[j] / sum) : A::store(0.0);
  }
}

template <class A>
void step(Matrix<typename A::Number>& x, const Projections& w) {
  const auto h = normalised<A>(x);
  const auto q = product<A>(h, w[0]), k = product<A>(h, w[1]), v = product<A>(h, w[2]);
  auto weights = product<A>(q, transposed(k));
  causal_softmax<A>(weights, 1.0 / std::sqrt(static_cast<double>(x.cols)));
  const auto branch = product<A>(product<A>(weights, v), w[3]);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = A::store(static_cast<double>(x.values[i]) + branch.values[i]);
}

/// Normals times scale, rounded to FP16.
Matrix<float> random_halves(std::size_t rows, std::size_t cols, double scale, NormalPlace place) {
  Matrix<float> out(rows, cols);
  fill_standard_normals(out.values, place);
  for (float& x : out.values) x = static_cast<float>(round_to_half(x * scale));
  return out;
}

Projections projections(std::size_t dim, std::uint32_t number, std::uint32_t trial) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const auto draw = [&](std::uint32_t which) {
    return random_halves(dim, dim, scale, {kProjections, 4 * number + which, trial});
  };
  return {draw(0), draw(1), draw(2), draw(3)};
}

/// What all arms of a trial share.
struct Problem {
  Matrix<float> start;
  std::vector<Projections> layers;  ///< one a step
};

Problem draw_problem(const PropagationParams& params, std::uint32_t trial) {
  const auto length = static_cast<std::size_t>(params.length), dim = static_cast<std::size_t>(params.dim);
  Problem out{random_halves(length, dim, 1.0, {kState, 0, trial}), {}};
  for (std::uint32_t i = 0; i < static_cast<std::uint64_t>(params.steps.back()); ++i)
    out.layers.push_back(projections(dim, i, trial));
  return out;
}

using States = std::vector<std::vector<double>>;  ///< [steps][length · dim]

template <class A>
States states_in(const PropagationParams& params, const Problem& problem) {
  Matrix<typename A::Number> x(problem.start.rows, problem.start.cols);
  std::copy(problem.start.values.begin(), problem.start.values.end(), x.values.begin());
  States out;
  std::size_t done = 0;
  for (const std::int64_t n : params.steps) {
    for (; done < static_cast<std::size_t>(n); ++done) step<A>(x, problem.layers[done]);
    out.emplace_back(x.values.begin(), x.values.end());
  }
  return out;
}

States states(const PropagationParams& params, const Problem& problem, StepArithmetic arithmetic) {
  switch (arithmetic) {
    case StepArithmetic::float64:
      return states_in<Float64>(params, problem);
    case StepArithmetic::float16:
      return states_in<Float16>(params, problem);
    case StepArithmetic::float16_accumulate:
      return states_in<Float16Accumulate>(params, problem);
  }
  fail(ErrorKind::internal, "propagate: unknown arithmetic {}", static_cast<int>(arithmetic));
}

PropagatedTrial compare(const States& found, const States& exact) {
  PropagatedTrial out;
  for (std::size_t at = 0; at < exact.size(); ++at) {
    double squares = 0.0, error = 0.0;
    for (std::size_t i = 0; i < exact[at].size(); ++i) {
      squares += exact[at][i] * exact[at][i];
      error += (found[at][i] - exact[at][i]) * (found[at][i] - exact[at][i]);
    }
    const auto n = static_cast<double>(exact[at].size());
    out.rel_err.push_back(std::sqrt(error / squares));
    out.error_rms.push_back(std::sqrt(error / n));
    out.state_rms.push_back(std::sqrt(squares / n));
  }
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile_sorted(values, 0.5);
}

/// Puts the median of the trials' errors after step number `at`, and its interval, into a row.
void put_error(const std::vector<PropagatedTrial>& trials, std::size_t at, const std::string& prefix, Json& row) {
  const auto of = [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
    std::vector<double> values;
    for (const std::uint32_t t : drawn) values.push_back(100.0 * trials[t].rel_err[at]);
    return median(std::move(values));
  };
  const auto interval = bootstrap_interval(static_cast<std::int64_t>(trials.size()), of, BootstrapMethod::percentile);
  row[prefix + "rel_err_pct"] = *interval.value;
  row[prefix + "rel_err_ci_low_pct"] = *interval.low;
  row[prefix + "rel_err_ci_high_pct"] = *interval.high;
}

using Errors = std::vector<double> PropagatedTrial::*;

/// The slope of log error on log N over steps[from] … steps[to − 1], with an interval over trials.
Json growth_row(const PropagationParams& params, const std::vector<PropagatedTrial>& trials, Errors errors,
                std::size_t from, std::size_t to) {
  std::vector<double> slopes;
  for (const PropagatedTrial& trial : trials) {
    std::vector<double> log_n, log_error;
    for (std::size_t i = from; i < to; ++i) {
      log_n.push_back(std::log(static_cast<double>(params.steps[i])));
      log_error.push_back(std::log((trial.*errors)[i]));
    }
    if (const auto slope = fit_line(log_n, log_error).slope) slopes.push_back(*slope);
  }
  const Stat s = summarize(slopes);
  if (!s.ci_low) return nullptr;  // fewer than two trials with a defined slope: no error anywhere
  return {{"error", errors == &PropagatedTrial::rel_err ? "relative" : "absolute"},
          {"from_steps", params.steps[from]},
          {"to_steps", params.steps[to - 1]},
          {"exponent", *s.mean},
          {"ci_low", *s.ci_low},
          {"ci_high", *s.ci_high},
          {"trials", s.n}};
}

/// Appends the rows of one arm: all steps, the lower half of the list, the upper half.
void add_growth(const PropagationParams& params, const std::vector<PropagatedTrial>& trials, StepArithmetic arithmetic,
                Json& rows) {
  const std::size_t n = params.steps.size(), half = n / 2;
  for (const Errors errors : {&PropagatedTrial::rel_err, &PropagatedTrial::error_rms})
    for (const auto& [from, to] : {std::pair{std::size_t{0}, n}, {0, half}, {half, n}}) {
      if (to - from < 2) continue;  // too few for a slope
      const Json found = growth_row(params, trials, errors, from, to);
      if (found.is_null()) continue;
      Json row = {{"arithmetic", json_key(name_of(arithmetic))}};
      row.update(found);
      rows.push_back(std::move(row));
    }
}

PropagationParams validated(PropagationParams p) {
  std::sort(p.steps.begin(), p.steps.end());
  p.steps.erase(std::unique(p.steps.begin(), p.steps.end()), p.steps.end());
  if (p.steps.size() < 2) fail_usage("--steps: expected two or more different numbers, found {}", p.steps.size());
  if (p.steps.front() < 1) fail_usage("--steps: expected 1 or more, found {}", p.steps.front());
  if (p.length < 1) fail_usage("--length: expected 1 or more, found {}", p.length);
  if (p.dim < 1) fail_usage("--dim: expected 1 or more, found {}", p.dim);
  if (p.trials < 2) fail_usage("--trials: expected 2 or more, found {}", p.trials);
  return p;
}

}  // namespace

std::vector<PropagatedTrial> propagate(const PropagationParams& params, const std::vector<StepArithmetic>& arms,
                                       std::uint32_t trial) {
  const Problem problem = draw_problem(params, trial);
  const States exact = states(params, problem, StepArithmetic::float64);
  std::vector<PropagatedTrial> out;
  for (const StepArithmetic arithmetic : arms) out.push_back(compare(states(params, problem, arithmetic), exact));
  return out;
}

Json run_propagation(const PropagationParams& given) {
  const PropagationParams params = validated(given);
  std::vector<PropagatedTrial> float16, accumulate;
  for (std::uint32_t trial = 0; trial < static_cast<std::uint64_t>(params.trials); ++trial) {
    auto arms = propagate(params, {StepArithmetic::float16, StepArithmetic::float16_accumulate}, trial);
    float16.push_back(std::move(arms[0]));
    accumulate.push_back(std::move(arms[1]));
  }
  Json rows = Json::array(), growth = Json::array();
  for (std::size_t i = 0; i < params.steps.size(); ++i) {
    std::vector<double> rms;
    for (const PropagatedTrial& trial : float16) rms.push_back(trial.state_rms[i]);
    Json row = {{"n_steps", params.steps[i]}, {"trials", params.trials}, {"state_rms", median(rms)}};
    put_error(float16, i, "", row);
    put_error(accumulate, i, "float16_accumulate_", row);
    rows.push_back(std::move(row));
  }
  add_growth(params, float16, StepArithmetic::float16, growth);
  add_growth(params, accumulate, StepArithmetic::float16_accumulate, growth);
  return {{"propagation", std::move(rows)}, {"growth", std::move(growth)}};
}

}  // namespace kvdiv
