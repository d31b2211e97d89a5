#include "kvdiv/experiments/falsify_dot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "kvdiv/base/random.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"
#include "kvdiv/stats/regression.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

using Values = std::vector<double>;

constexpr std::size_t kRoundingColumns = 3;  // operands, result, operands_and_stored
constexpr std::size_t kColumns = kRoundingColumns + EnumNames<SumOrder>::values.size() * 2;
constexpr int kResamples = 500;
enum Purpose : std::uint32_t { kQuery, kKey, kScores, kWeightedQuery, kWeightedValue };

/// Sums of squares over one trial. The accumulation columns have their own reference.
struct TrialSquares {
  std::array<double, kColumns> error{};
  double reference = 0.0, reference_of_halves = 0.0;

  double relative_pct(std::size_t column) const {
    return 100.0 * std::sqrt(error[column] / (column < kRoundingColumns ? reference : reference_of_halves));
  }
  void add(const TrialSquares& other) {
    for (std::size_t c = 0; c < kColumns; ++c) error[c] += other.error[c];
    reference += other.reference;
    reference_of_halves += other.reference_of_halves;
  }
};

struct Estimate {
  double pct = 0.0, ci_low = 0.0, ci_high = 0.0, std = 0.0;
};
using Estimates = std::array<Estimate, kColumns>;
using Theory = std::array<std::optional<double>, kColumns>;  ///< percent

template <class F>
void for_each_accumulation(F f) {
  std::size_t column = kRoundingColumns;
  for (const auto& [accumulator, accumulator_name] : EnumNames<Accumulator>::values)
    for (const auto& [order, order_name] : EnumNames<SumOrder>::values) f(column++, order, accumulator);
}

std::array<std::string, kColumns> column_names() {
  std::array<std::string, kColumns> out{"operands", "result", "operands_and_stored"};
  for_each_accumulation([&](std::size_t column, SumOrder order, Accumulator accumulator) {
    out[column] = json_key(name_of(order)) + "_" + std::string(name_of(accumulator));
  });
  return out;
}

Values normals(std::size_t n, NormalPlace place) {
  std::vector<float> drawn(n);
  fill_standard_normals(drawn, place);
  return {drawn.begin(), drawn.end()};
}

Values rounded_to_half(const Values& values) {
  Values out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](double x) { return round_to_half(x); });
  return out;
}

double dot64(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Operands {
  std::span<const double> a, b, a_half, b_half;
};

/// Adds the squared errors of one dot product, every column against its own reference.
void measure(const Operands& in, TrialSquares& squares) {
  const double reference = dot64(in.a, in.b), of_halves = dot64(in.a_half, in.b_half);
  const auto add = [&](std::size_t column, double error) { squares.error[column] += error * error; };
  add(0, of_halves - reference);
  add(1, round_to_half(reference) - reference);
  add(2, round_to_half(of_halves) - reference);
  for_each_accumulation([&](std::size_t column, SumOrder order, Accumulator accumulator) {
    add(column, ordered_dot(in.a_half, in.b_half, order, accumulator) - of_halves);
  });
  squares.reference += reference * reference;
  squares.reference_of_halves += of_halves * of_halves;
}

std::vector<TrialSquares> dot_trials(std::size_t length, std::int64_t trials) {
  std::vector<TrialSquares> out(static_cast<std::size_t>(trials));
  for (std::uint32_t trial = 0; trial < out.size(); ++trial) {
    const auto index = static_cast<std::uint32_t>(length);
    const Values q = normals(length, {kQuery, index, trial}), k = normals(length, {kKey, index, trial});
    const Values q_half = rounded_to_half(q), k_half = rounded_to_half(k);
    measure({q, k, q_half, k_half}, out[trial]);
  }
  return out;
}

/// [length] softmax of q·kᵢ/√head_dim, in FP64.
Values attention_weights(std::size_t length, std::size_t head_dim, std::uint32_t trial) {
  const auto index = static_cast<std::uint32_t>(length);
  const Values q = normals(head_dim, {kWeightedQuery, index, trial});
  const double scale = std::sqrt(dot64(q, q) / static_cast<double>(head_dim));
  Values weights = normals(length, {kScores, index, trial});
  double sum = 0.0;
  for (double& w : weights) sum += w = std::exp(scale * w);  // no score is beyond ±10: nothing to subtract first
  for (double& w : weights) w /= sum;
  return weights;
}

struct WeightedTrials {
  std::vector<TrialSquares> squares;
  double mean_square_weights = 0.0;  ///< mean over trials of Σ w² of the rounded weights: the variance of an output
};

/// One entry a head_dim. V is [largest head_dim, length], so that an output's values lie together; smaller heads see
/// its first rows (drawing normals is a third of the time).
std::vector<WeightedTrials> weighted_trials(std::size_t length, const std::vector<std::int64_t>& head_dims,
                                            std::int64_t trials) {
  std::vector<WeightedTrials> out(head_dims.size());
  const std::int64_t most = head_dims.empty() ? 0 : *std::max_element(head_dims.begin(), head_dims.end());
  for (std::uint32_t trial = 0; trial < static_cast<std::size_t>(trials); ++trial) {
    const auto index = static_cast<std::uint32_t>(length);
    const Values v = normals(length * static_cast<std::size_t>(most), {kWeightedValue, index, trial});
    const Values v_half = rounded_to_half(v);
    for (std::size_t i = 0; i < head_dims.size(); ++i) {
      const auto head_dim = static_cast<std::size_t>(head_dims[i]);
      const Values w = attention_weights(length, head_dim, trial), w_half = rounded_to_half(w);
      TrialSquares& squares = out[i].squares.emplace_back();
      for (std::size_t from = 0; from < length * head_dim; from += length)
        measure({w, std::span(v).subspan(from, length), w_half, std::span(v_half).subspan(from, length)}, squares);
      out[i].mean_square_weights += dot64(w_half, w_half) / static_cast<double>(trials);
    }
  }
  return out;
}

/// The sums over one resample of the trials, drawn as stats/summary.cpp draws prompts.
TrialSquares resample(std::span<const TrialSquares> trials, std::uint32_t number) {
  constexpr std::array<std::uint32_t, 2> kKey{0x6b766469u, 0x626f6f74u};  // "kvdi", "boot"
  TrialSquares sum;
  for (std::size_t drawn = 0; drawn < trials.size();)
    for (const std::uint32_t word : philox4x32({static_cast<std::uint32_t>(drawn / 4), number, 0, 0}, kKey)) {
      if (drawn++ == trials.size()) break;
      sum.add(trials[(std::uint64_t{word} * trials.size()) >> 32]);
    }
  return sum;
}

Estimates estimate(std::span<const TrialSquares> trials) {
  TrialSquares all;
  for (const TrialSquares& t : trials) all.add(t);
  std::array<Values, kColumns> resampled;
  for (std::uint32_t number = 0; number < kResamples; ++number) {
    const TrialSquares sum = resample(trials, number);
    for (std::size_t c = 0; c < kColumns; ++c) resampled[c].push_back(sum.relative_pct(c));
  }
  Estimates out;
  StatOptions no_interval;
  no_interval.n_resamples = 0;
  for (std::size_t c = 0; c < kColumns; ++c) {
    std::sort(resampled[c].begin(), resampled[c].end());
    out[c] = {all.relative_pct(c), quantile_sorted(resampled[c], 0.025), quantile_sorted(resampled[c], 0.975),
              *summarize(resampled[c], no_interval).std};
  }
  return out;
}

/// r(σ) of the header, in percent.
double one_rounding_pct(double sigma) {
  return 100.0 * std::sqrt(rounding_variance(sigma, Accumulator::float16)) / sigma;
}

/// The accumulation columns only; the others depend on how the operands are distributed.
Theory accumulation_theory(std::size_t n, double term_variance) {
  Theory out;
  for_each_accumulation([&](std::size_t column, SumOrder order, Accumulator accumulator) {
    const double variance = sum_rounding_variance(order, n, term_variance, accumulator);
    out[column] = 100.0 * std::sqrt(variance / (static_cast<double>(n) * term_variance));
  });
  return out;
}

Theory dot_theory(std::size_t n) {
  Theory out = accumulation_theory(n, 1.0);
  const double operands = std::sqrt(2.0) * one_rounding_pct(1.0);
  const double result = one_rounding_pct(std::sqrt(static_cast<double>(n)));
  out[0] = operands;
  out[1] = result;
  out[2] = std::hypot(operands, result);
  return out;
}

/// Appends to `wide` one row with all columns, and to `tall` one row a column, each beginning with the keys of `head`.
void add_rows(const Json& head, const Estimates& estimates, const Theory& theory, Json& wide, Json& tall) {
  const auto names = column_names();
  Json row = head;
  for (std::size_t c = 0; c < kColumns; ++c) {
    const Estimate& e = estimates[c];
    row[names[c] + "_pct"] = e.pct;
    Json one = head;
    one.update({{"column", names[c]}, {"error_pct", e.pct}, {"ci_low_pct", e.ci_low}, {"ci_high_pct", e.ci_high}});
    one["std_pct"] = e.std;
    if (theory[c]) one["theory_pct"] = row[names[c] + "_theory_pct"] = *theory[c];
    tall.push_back(std::move(one));
  }
  wide.push_back(std::move(row));
}

Values logs(const Values& values) {
  Values out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](double x) { return std::log(x); });
  return out;
}

Json over_lengths(const Values& lengths, const std::array<Values, kColumns>& errors) {
  Json out = Json::array();
  const auto names = column_names();
  StatOptions no_interval;
  no_interval.n_resamples = 0;
  for (std::size_t c = 0; c < kColumns; ++c) {
    const Stat s = summarize(errors[c], no_interval);
    if (!s.std || *s.min <= 0.0) continue;  // one length, or one without any error: neither a ratio nor a logarithm
    const LineFit line = fit_line(logs(lengths), logs(errors[c]));
    if (!line.slope) continue;  // the same length again and again
    out.push_back({{"column", names[c]},
                   {"mean_pct", *s.mean},
                   {"std_pct", *s.std},
                   {"max_over_min", *s.max / *s.min},
                   {"growth_exponent", *line.slope}});
  }
  return out;
}

void validate(const DotParams& p) {
  if (p.trials < 2) fail_usage("--trials: expected 2 or more, found {}", p.trials);
  if (p.weighted_trials < 2) fail_usage("--weighted-trials: expected 2 or more, found {}", p.weighted_trials);
  for (const std::int64_t n : p.lengths)
    if (n < 1) fail_usage("--lengths: expected 1 or more, found {}", n);
  for (const std::int64_t n : p.head_dims)
    if (n < 1) fail_usage("--head-dims: expected 1 or more, found {}", n);
}

}  // namespace

Json run_dot(const DotParams& params) {
  validate(params);
  Json dot = Json::array(), dot_columns = Json::array(), weighted = Json::array(), weighted_columns = Json::array();
  Values lengths;
  std::array<Values, kColumns> errors;
  for (const std::int64_t length : params.lengths) {
    const auto n = static_cast<std::size_t>(length);
    const Estimates found = estimate(dot_trials(n, params.trials));
    add_rows({{"length", length}, {"trials", params.trials}}, found, dot_theory(n), dot, dot_columns);
    lengths.push_back(static_cast<double>(length));
    for (std::size_t c = 0; c < kColumns; ++c) errors[c].push_back(found[c].pct);
    const auto sums = weighted_trials(n, params.head_dims, params.weighted_trials);
    for (std::size_t i = 0; i < sums.size(); ++i)
      add_rows({{"length", length}, {"head_dim", params.head_dims[i]}, {"trials", params.weighted_trials}},
               estimate(sums[i].squares),
               accumulation_theory(n, sums[i].mean_square_weights / static_cast<double>(length)), weighted,
               weighted_columns);
  }
  const double r = one_rounding_pct(1.0);
  return {{"dot", std::move(dot)},
          {"dot_columns", std::move(dot_columns)},
          {"weighted_sum", std::move(weighted)},
          {"weighted_sum_columns", std::move(weighted_columns)},
          {"dot_over_lengths", over_lengths(lengths, errors)},
          {"closed_form",
           {{"one_rounding_pct", r},
            {"operands_pct", std::sqrt(2.0) * r},
            {"operands_and_stored_pct", std::sqrt(3.0) * r}}}};
}

}  // namespace kvdiv
