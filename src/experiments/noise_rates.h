#pragma once
// Ratios of sums over prompts.
#include <span>
#include <utility>
#include <vector>

#include "kvdiv/stats/bootstrap.h"

namespace kvdiv {

template <class P>
std::optional<double> ratio_of(const std::vector<P>& prompts, std::span<const std::uint32_t> drawn, double P::*count,
                               double P::*total) {
  double a = 0.0, b = 0.0;
  for (const std::uint32_t i : drawn) a += prompts[i].*count, b += prompts[i].*total;
  return b > 0.0 ? std::optional(a / b) : std::nullopt;
}

/// Σ count/Σ total, with its interval.
template <class P>
BootstrapInterval ratio_interval(const std::vector<P>& prompts, double P::*count, double P::*total) {
  std::vector<std::pair<double, double>> each;
  for (const P& p : prompts) each.emplace_back(p.*count, p.*total);
  return ratio_of_sums(each);
}

}  // namespace kvdiv
