#pragma once
// The draws of every bootstrap of kvdiv.
#include <array>
#include <cstdint>

#include "kvdiv/base/random.h"

namespace kvdiv {

/// Calls take(i) for n draws from 0 … n − 1 with replacement. They come from Philox, addressed by (resample, draw), so
/// that a resample does not depend on those before it. A 32-bit word picks one of n by multiplication: its bias is
/// below n/2³².
template <class Take>
void draw_clusters(std::uint64_t n, std::uint32_t resample, std::uint64_t seed, Take take) {
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::uint64_t drawn = 0; drawn < n;) {
    for (const std::uint32_t word : philox4x32({static_cast<std::uint32_t>(drawn / 4), resample, 0, 0}, key)) {
      if (drawn++ == n) break;
      take(static_cast<std::uint32_t>((std::uint64_t{word} * n) >> 32));
    }
  }
}

}  // namespace kvdiv
