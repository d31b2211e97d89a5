#include "kvdiv/numerics/ulp.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

/// Floating numbers are ordered as sign and magnitude; this makes their bits ordered as integers.
template <class Bits>
double ordered(const void* at) {
  Bits bits{};
  std::memcpy(&bits, at, sizeof bits);
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const Bits magnitude = bits & static_cast<Bits>(sign - 1);
  return (bits & sign) != 0 ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

/// FP64's bits as integers do not fit into a double; their difference is taken before it is rounded.
double distance64(const void* a, const void* b) {
  const auto key = [](const void* at) {
    std::int64_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return bits < 0 ? -(bits & INT64_MAX) : bits;
  };
  const std::int64_t x = key(a), y = key(b);
  return static_cast<double>(x > y ? static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y)
                                   : static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x));
}

}  // namespace

std::vector<double> ulp_distances(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes())
    fail(ErrorKind::internal, "ulp_distances: tensors of different dtype or shape");
  const at::Tensor x = a.to(at::kCPU).contiguous(), y = b.to(at::kCPU).contiguous();
  const auto size = static_cast<std::size_t>(x.element_size());
  const auto* px = static_cast<const char*>(x.const_data_ptr());
  const auto* py = static_cast<const char*>(y.const_data_ptr());
  std::vector<double> out(static_cast<std::size_t>(x.numel()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const void *p = px + i * size, *q = py + i * size;
    out[i] = size == 2   ? std::abs(ordered<std::uint16_t>(p) - ordered<std::uint16_t>(q))
             : size == 4 ? std::abs(ordered<std::uint32_t>(p) - ordered<std::uint32_t>(q))
                         : distance64(p, q);
  }
  return out;
}

}  // namespace kvdiv
