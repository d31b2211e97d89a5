#pragma once
// Arrays of the kernels' types, and launches in the emulator.
#include "support/cuda_emulator.h"

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/launch.h"

namespace kvdiv::test {

using device::BFloat;
using device::Half;
using device::Wide;

/// What a launcher of src/cuda calls: runs the kernel at once.
struct Emulated {
  std::uint64_t seed = 1;
  std::vector<std::string> names = {};  ///< of the kernels that ran

  template <class... Parameters, class... Arguments>
  void operator()(const char* name, void (*kernel)(Parameters...), const cuda::Geometry& geometry,
                  Arguments... arguments) {
    names.emplace_back(name);
    emulator::run({.grid_x = static_cast<int>(geometry.grid_x),
                   .grid_y = static_cast<int>(geometry.grid_y),
                   .grid_z = static_cast<int>(geometry.grid_z),
                   .threads = geometry.threads,
                   .shared_bytes = geometry.shared_bytes,
                   .seed = seed},
                  [&] { kernel(arguments...); });
  }
};

/// Numbers around `mean`, with deviation `size`.
template <class T>
std::vector<T> random_numbers(std::size_t n, std::uint64_t seed, double size = 1.0, double mean = 0.0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, size);
  std::vector<T> out(n);
  for (auto& x : out) x = device::narrow<T>(static_cast<Wide<T>>(normal(random)));
  return out;
}

template <class T>
bool same_bits(const T* a, const T* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(T)) == 0;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

template <class T>
std::vector<double> doubles(const std::vector<T>& x) {
  std::vector<double> out;
  for (const T v : x) out.push_back(static_cast<double>(device::widen(v)));
  return out;
}

/// Half the distance between neighbouring numbers of a storage type, relative to a number of size 1.
template <class T>
constexpr double unit_roundoff() {
  if (std::is_same_v<T, Half>) return 0x1p-11;
  if (std::is_same_v<T, BFloat>) return 0x1p-8;
  return std::is_same_v<T, float> ? 0x1p-24 : 0x1p-53;
}

}  // namespace kvdiv::test
