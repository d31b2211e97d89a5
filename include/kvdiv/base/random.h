#pragma once
// Two generators whose outputs are part of the protocol: Python's random.Random for drawing the sample of prompts, and
// Philox 4x32-10 for the uniforms of sampling, addressed by counters so that both arms and any order see the same value.
#include <array>
#include <cstdint>
#include <vector>

namespace kvdiv {

/// The generator of Python's `random.Random(seed)` for a non-negative integer seed: MT19937, init_by_array of the
/// seed's 32-bit words, least significant first.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);
  std::uint32_t next_u32();
  /// getrandbits(k), 1 ≤ k ≤ 64.
  std::uint64_t bits(int k);
  /// _randbelow(n), n ≥ 1: rejection on getrandbits(n.bit_length()).
  std::uint64_t below(std::uint64_t n);
  /// sample(range(n), k): CPython's pool method for small n, its set method otherwise. 0 ≤ k ≤ n.
  std::vector<std::int64_t> sample_range(std::int64_t n, std::int64_t k);

 private:
  std::array<std::uint32_t, 624> state_{};
  int index_ = 624;
};

/// Philox 4x32-10 (Salmon et al., SC'11): one block of four words for a counter and a key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Four standard normal numbers of a Philox block (Box & Muller, 1958), from 32 random bits each.
std::array<double, 4> standard_normals(const std::array<std::uint32_t, 4>& words);

/// A uniform in [0, 1) with 53 random bits for (seed, prompt, step): the same for both arms, whatever the order.
double uniform_for(std::uint64_t seed, std::uint64_t prompt, std::uint64_t step);

}  // namespace kvdiv
