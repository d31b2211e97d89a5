#pragma once
// Where along an axis a result begins to differ.
#include <cstdint>
#include <functional>
#include <optional>

namespace kvdiv {

struct Onset {
  std::optional<std::int64_t> n;  ///< smallest n found that differs
  double max_ulp = 0.0;           ///< there
  std::int64_t n_probed = 0, n_differing = 0;
  bool monotone = true;  ///< every n probed from the onset on differs
};

/// `max_ulp(n)`: how far the result at n is from that alone, 0 for the same bits; called once for each n it is tried at,
/// first ≤ n ≤ last. All of them if `exhaustive`, else the grid of experiments/shapes.h and a bisection.
Onset find_onset(std::int64_t first, std::int64_t last, bool exhaustive,
                 const std::function<double(std::int64_t)>& max_ulp);

}  // namespace kvdiv
