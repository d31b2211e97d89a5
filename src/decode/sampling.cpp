#include "kvdiv/decode/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

bool ranks_before(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void fill_weights(std::span<const double> logits, double temperature, std::vector<double>& weights) {
  const double largest = logits[static_cast<std::size_t>(argmax_token(logits))];
  weights.resize(logits.size());
  // The difference comes first: it is at most 0, so however small the temperature, the largest weight is exp(0).
  std::transform(logits.begin(), logits.end(), weights.begin(),
                 [&](double logit) { return std::exp((logit - largest) / temperature); });
}

/// How many of the best-ranked tokens have together at least `target` weight. On return they are the first ones of
/// `ranking`, and the last of them is the worst. A quickselect by mass: linear time on average, where a sort of a
/// vocabulary of 256,000 would take longer than everything else on the host.
std::size_t count_to_reach(double target, const std::vector<double>& weights, std::vector<RankedToken>& ranking) {
  std::size_t low = 0, high = ranking.size();  // the answer is in (low, high]
  double mass_before_low = 0.0;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    const auto at = [&](std::size_t i) { return ranking.begin() + static_cast<std::ptrdiff_t>(i); };
    std::nth_element(at(low), at(middle), at(high), ranks_before);
    double mass = mass_before_low;
    for (std::size_t i = low; i < middle; ++i) mass += weights[static_cast<std::size_t>(ranking[i].id)];
    if (mass >= target) {
      high = middle;
    } else {
      low = middle;
      mass_before_low = mass;
    }
  }
  return high;
}

void keep_top_k(std::int64_t k, std::vector<RankedToken>& ranking) {
  if (k >= std::ssize(ranking)) return;
  std::nth_element(ranking.begin(), ranking.begin() + (k - 1), ranking.end(), ranks_before);
  ranking.resize(static_cast<std::size_t>(k));
}

void keep_top_p(double p, const std::vector<double>& weights, std::vector<RankedToken>& ranking) {
  if (p >= 1.0) return;
  double total = 0.0;
  const auto weight_of = [&](const RankedToken& token) { return weights[static_cast<std::size_t>(token.id)]; };
  for (const RankedToken& token : ranking) total += weight_of(token);
  // n tokens below (1 − p)/n of the mass have together less than 1 − p: the others reach p without them. (Half of that,
  // so that rounding cannot remove the last one.) Of a trained model's vocabulary this leaves few.
  const double negligible = 0.5 * (1.0 - p) * total / static_cast<double>(ranking.size());
  std::erase_if(ranking, [&](const RankedToken& token) { return weight_of(token) < negligible; });
  ranking.resize(count_to_reach((p - kMassTolerance) * total, weights, ranking));
}

/// Fills scratch.weights, with zero for every token that does not survive.
void weigh_survivors(std::span<const double> logits, double temperature, std::optional<std::int64_t> k,
                     std::optional<double> p, SamplingScratch& scratch) {
  fill_weights(logits, temperature, scratch.weights);
  scratch.ranking.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (scratch.weights[i] > 0.0) scratch.ranking.push_back({logits[i], static_cast<TokenId>(i)});
  const std::size_t n_weighted = scratch.ranking.size();
  if (k) keep_top_k(*k, scratch.ranking);
  if (p) keep_top_p(*p, scratch.weights, scratch.ranking);
  if (scratch.ranking.size() == n_weighted) return;  // nothing was cut
  const RankedToken last = *std::max_element(scratch.ranking.begin(), scratch.ranking.end(), ranks_before);
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (ranks_before(last, {logits[i], static_cast<TokenId>(i)})) scratch.weights[i] = 0.0;
}

/// Inverse of the cumulated weights, in id order. The total is summed in the same order, so that the walk ends at it.
TokenId draw(const std::vector<double>& weights, double uniform) {
  double total = 0.0;
  for (const double weight : weights) total += weight;
  const double target = uniform * total;
  double cumulated = 0.0;
  TokenId last_with_weight = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0) continue;
    cumulated += weights[i];
    last_with_weight = static_cast<TokenId>(i);
    if (cumulated > target) return last_with_weight;
  }
  return last_with_weight;  // the product was rounded up to the total
}

}  // namespace

void validate(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0.0)
    fail_usage("--temperature: expected a finite number of at least 0 (0 is greedy), found {}", params.temperature);
  if (params.top_k < 1) fail_usage("--top-k: expected at least 1, found {}", params.top_k);
  if (!(params.top_p > 0.0 && params.top_p <= 1.0))
    fail_usage("--top-p: expected a number above 0 and at most 1, found {}", params.top_p);
}

TokenId argmax_token(std::span<const double> logits) {
  if (logits.empty()) fail(ErrorKind::internal, "no logits to choose a token from");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<double>::infinity())
      fail(ErrorKind::invalid_measurement, "logit {} of {} is {}: no token can be chosen; run in bfloat16 or float32",
           i, logits.size(), logits[i]);
    if (logits[i] > logits[best]) best = i;  // not >=: the lowest id wins a tie
  }
  if (std::isinf(logits[best]))
    fail(ErrorKind::invalid_measurement, "all {} logits are -inf: no token can be chosen; run in bfloat16 or float32",
         logits.size());
  return static_cast<TokenId>(best);
}

Sampler::Sampler(const SamplingParams& params) : params_(params) { validate(params_); }

TokenId Sampler::choose(std::span<const double> logits, double uniform) {
  if (params_.strategy == Strategy::greedy || params_.temperature == 0.0) return argmax_token(logits);
  if (!(uniform >= 0.0 && uniform < 1.0)) fail(ErrorKind::internal, "uniform: expected [0, 1), found {}", uniform);
  const bool is_top_k = params_.strategy == Strategy::top_k;
  weigh_survivors(logits, params_.temperature, is_top_k ? std::optional(params_.top_k) : std::nullopt,
                  is_top_k ? std::nullopt : std::optional(params_.top_p), scratch_);
  return draw(scratch_.weights, uniform);
}

TokenId choose_token(std::span<const double> logits, const SamplingParams& params, double uniform) {
  return Sampler(params).choose(logits, uniform);
}

std::vector<TokenId> surviving_tokens(std::span<const double> logits, double temperature, std::optional<std::int64_t> k,
                                      std::optional<double> p) {
  SamplingScratch scratch;
  weigh_survivors(logits, temperature, k, p, scratch);
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < scratch.weights.size(); ++i)
    if (scratch.weights[i] > 0.0) ids.push_back(static_cast<TokenId>(i));
  return ids;
}

}  // namespace kvdiv
