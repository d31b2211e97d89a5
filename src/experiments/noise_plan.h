#pragma once
// Which noises `noise` puts on every text.
#include <vector>

#include "kvdiv/experiments/noise.h"

namespace kvdiv {

struct NoiseCase {
  NoiseWhat what = NoiseWhat::kv;
  NoiseKind kind = NoiseKind::gaussian;
  double size = 0.0;       ///< of gaussian
  std::int64_t bits = 52;  ///< of mantissa
  std::int64_t seed = 0;   ///< of gaussian

  CacheNoise on(std::int64_t prompt_index) const;
};

std::vector<NoiseCase> noise_plan(const NoiseParams& params);

}  // namespace kvdiv
