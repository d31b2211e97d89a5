#include "kvdiv/numerics/half.h"

#include <algorithm>

#include "kvdiv/base/error.h"

namespace kvdiv {

double ulp_of_half(double x) {
  if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = x == 0.0 ? -14 : std::clamp(std::ilogb(x), -14, 15);
  return std::ldexp(1.0, exponent - 10);
}

double round_to_mantissa_bits(double x, int bits) {
  if (bits < 1 || bits > 52) fail(ErrorKind::internal, "mantissa bits: expected 1 to 52, found {}", bits);
  if (x == 0.0 || !std::isfinite(x)) return x;
  // Subnormal doubles have no implied bit. Scaled up they are normal, and back the result is exact: its last bit is
  // worth no less than the last bit of x was.
  if (std::fabs(x) < std::numeric_limits<double>::min()) return round_to_mantissa_bits(x * 0x1p100, bits) * 0x1p-100;
  const int dropped = 52 - bits;
  if (dropped == 0) return x;
  const std::uint64_t tail = (std::uint64_t{1} << dropped) - 1;
  const auto word = std::bit_cast<std::uint64_t>(x);
  return std::bit_cast<double>((word + (tail >> 1) + ((word >> dropped) & 1)) & ~tail);
}

}  // namespace kvdiv
