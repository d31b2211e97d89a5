#pragma once
// Numbers as the kernels store them, and what they are computed in. No CUDA header: the emulator of the tests uses them
// too.
#include <cstdint>

namespace kvdiv::device {

/// IEEE binary16 and bfloat16, as bits: all arithmetic is in FP32.
struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

template <class T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
/// What a storage type is accumulated in.
template <class T>
using Wide = typename WideOf<T>::type;

/// Sixteen bytes: the largest load, and the unit of asynchronous copies.
struct alignas(16) Bytes16 {
  std::uint32_t word[4];
};

inline constexpr int kWarp = 32;

}  // namespace kvdiv::device
