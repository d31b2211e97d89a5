#pragma once
// Noise of a known relative size on what ON's cache holds. Every key and value is changed once, as it goes into the
// cache, and stays so: later steps attend to it.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/decode/arms.h"

namespace kvdiv {

/// gaussian: x·(1 + size·g) with g standard normal, drawn for each element. mantissa: x rounded to so many explicit
/// mantissa bits, whatever its exponent. Both are relative to each element, as a floating-point format's rounding is.
enum class NoiseKind { gaussian, mantissa };
template <>
struct EnumNames<NoiseKind> {
  static constexpr std::string_view what = "kind of noise";
  static constexpr std::array<std::pair<NoiseKind, std::string_view>, 2> values{
      {{NoiseKind::gaussian, "gaussian"}, {NoiseKind::mantissa, "mantissa"}}};
};

enum class CachePart { keys, values };

struct CacheNoise {
  NoiseKind kind = NoiseKind::gaussian;
  bool keys = true, values = true;
  double size = 0.0;       ///< of gaussian
  int mantissa_bits = 52;  ///< of mantissa; 1 … 52
  /// g depends on these and on the element's place (key or value, layer, position, head, dimension), and on nothing
  /// else: not on the size, and not on what was drawn before.
  std::uint64_t seed = 0, prompt = 0;
};

/// How large the change of keys and values is against them.
class RelativeChange {
 public:
  explicit RelativeChange(std::int64_t n_layers);

  /// Elements of one layer, as they were and as they are now. The change of an element is held against max(|x|, floor);
  /// elements for which that is 0 have no relative change. Elements that are not finite are counted and left out.
  void add(CachePart part, std::int64_t layer, std::span<const double> before, std::span<const double> after,
           double floor = 0.0);

  /// √ of the mean over layers, keys and values apart, of ‖Δ‖²/‖x‖² (Frobenius): each layer counts the same, however
  /// large its numbers are. Null if there is nothing that is not zero.
  std::optional<double> by_norm(bool keys = true, bool values = true) const;
  /// √ of the mean over elements of (Δ/x)².
  std::optional<double> by_element(bool keys = true, bool values = true) const;
  std::int64_t n_nonfinite() const { return n_nonfinite_; }

 private:
  struct Sums {
    double change = 0.0, norm = 0.0;  ///< Σ Δ², Σ x²
    double relative = 0.0;            ///< Σ (Δ/x)²
    std::int64_t n = 0;               ///< elements in `relative`
  };
  std::vector<Sums> keys_, values_;  ///< by layer
  std::int64_t n_nonfinite_ = 0;
};

/// Called with a step's number and logits.
using OnStep = std::function<void(std::int64_t step, const std::vector<double>& logits)>;

/// ON along a trajectory's tokens on a noisy cache, steps 1 … n − 1: the prefill is the clean one, its keys and values
/// get the noise, and so does each new one. `change` takes what was stored against what would have been (in the compute
/// dtype, so after its rounding). Returns the cache behind the last step. Throws Error{invalid_measurement} if a
/// logit is not finite.
KvCache walk_with_noise(const Arms& arms, const Trajectory& trajectory, const CacheNoise& noise, RelativeChange& change,
                        const OnStep& on_step);

}  // namespace kvdiv
