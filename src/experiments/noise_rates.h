#pragma once
// Ratios of sums over prompts.
#include <span>
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
  return bootstrap_interval(
      std::ssize(prompts), [&](std::span<const std::uint32_t> drawn) { return ratio_of(prompts, drawn, count, total); },
      BootstrapMethod::percentile);
}

}  // namespace kvdiv
