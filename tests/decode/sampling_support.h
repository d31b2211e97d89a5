#pragma once
// Small distributions for the tests of sampling.
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kvdiv/base/random.h"
#include "kvdiv/decode/sampling.h"

namespace kvdiv::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kAlmostOne = 1.0 - std::ldexp(1.0, -53);
using Ids = std::vector<TokenId>;

inline std::vector<double> logs(std::vector<double> probabilities) {
  for (double& p : probabilities) p = std::log(p);
  return probabilities;
}

inline Ids nucleus(std::vector<double> probabilities, double p) {
  return surviving_tokens(logs(std::move(probabilities)), 1.0, {}, p);
}

inline Ids first_ids(std::int64_t n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), TokenId{0});
  return ids;
}

inline SamplingParams top_k(std::int64_t k, double temperature = 1.0) {
  return {Strategy::top_k, temperature, k, 0.95};
}
inline SamplingParams top_p(double p, double temperature = 1.0) { return {Strategy::top_p, temperature, 50, p}; }

inline std::vector<double> random_logits(std::size_t n, double spread) {
  std::vector<double> logits(n);
  for (std::size_t i = 0; i < n; ++i) logits[i] = spread * uniform_for(1, 0, i);
  return logits;
}

}  // namespace kvdiv::test
