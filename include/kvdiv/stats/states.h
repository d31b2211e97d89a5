#pragma once
// How far two vectors of activations are apart. FP64 throughout: in half precision squares overflow and vanish.
#include <cstdint>
#include <optional>
#include <span>

namespace kvdiv {

struct StateDistance {
  double l2 = 0.0;               ///< ‖a − b‖₂
  std::optional<double> rel_l2;  ///< l2 / ‖b‖₂; null if b is zero
  std::optional<double> cosine;  ///< −1 … 1, exactly 1 for identical vectors; null if either is zero
  double max_abs = 0.0;          ///< max |a − b|
  double norm_a = 0.0, norm_b = 0.0;
};

/// Sizes must be equal (internal error). NaN and infinities spread into the result.
StateDistance compare_states(std::span<const double> a, std::span<const double> b);

/// The same without the `n_trimmed` dimensions in which |b| is largest (ties: the lower index goes first).
StateDistance compare_states_trimmed(std::span<const double> a, std::span<const double> b, std::int64_t n_trimmed);

}  // namespace kvdiv
