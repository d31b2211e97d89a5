#include "kvdiv/base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <unordered_set>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

// MT19937: Matsumoto and Nishimura, ACM TOMACS 8 (1998), table II, and the array seeding of their 2002 revision.
constexpr std::size_t kWords = 624;
constexpr std::size_t kShift = 397;

using MtState = std::array<std::uint32_t, kWords>;

void seed_with_word(MtState& state, std::uint32_t seed) {
  state[0] = seed;
  for (std::size_t i = 1; i < kWords; ++i) {
    const std::uint32_t previous = state[i - 1];
    state[i] = 1812433253u * (previous ^ (previous >> 30)) + static_cast<std::uint32_t>(i);
  }
}

void seed_with_array(MtState& state, std::span<const std::uint32_t> key) {
  seed_with_word(state, 19650218u);
  const auto mixed = [&](std::size_t i, std::uint32_t factor) {
    return state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * factor);
  };
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i == kWords) {
      state[0] = state[kWords - 1];
      i = 1;
    }
  };
  for (std::size_t n = 0; n < std::max(kWords, key.size()); ++n) {
    const std::size_t j = n % key.size();
    state[i] = mixed(i, 1664525u) + key[j] + static_cast<std::uint32_t>(j);
    advance();
  }
  for (std::size_t n = 0; n + 1 < kWords; ++n) {
    state[i] = mixed(i, 1566083941u) - static_cast<std::uint32_t>(i);
    advance();
  }
  state[0] = 0x80000000u;  // the state is never all zero
}

void next_state(MtState& state) {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t y = (state[i] & 0x80000000u) | (state[(i + 1) % kWords] & 0x7fffffffu);
    state[i] = state[(i + kShift) % kWords] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
  }
}

/// CPython draws from a copied pool while the pool is no larger than the table of a set of k would be: 21 slots, and
/// beyond five elements the power of four that is at least 3k. (3k is never a power of four, so no rounding matters.)
std::uint64_t largest_pool(std::uint64_t k) {
  std::uint64_t slots = 1;
  while (slots < 3 * k) slots *= 4;
  return k > 5 ? 21 + slots : 21;
}

}  // namespace

PythonRandom::PythonRandom(std::uint64_t seed) : index_(static_cast<int>(kWords)) {
  const std::array<std::uint32_t, 2> words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  seed_with_array(state_, std::span(words).first(words[1] != 0 ? 2 : 1));
}

std::uint32_t PythonRandom::next_u32() {
  if (index_ == static_cast<int>(kWords)) {
    next_state(state_);
    index_ = 0;
  }
  std::uint32_t y = state_[static_cast<std::size_t>(index_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

std::uint64_t PythonRandom::bits(int k) {
  if (k < 1 || k > 64) fail(ErrorKind::internal, "random bits: expected 1 to 64, found {}", k);
  if (k <= 32) return next_u32() >> (32 - k);
  const std::uint64_t low = next_u32();  // words come least significant first
  return low | (static_cast<std::uint64_t>(next_u32() >> (64 - k)) << 32);
}

std::uint64_t PythonRandom::below(std::uint64_t n) {
  if (n == 0) fail(ErrorKind::internal, "random number below 0");
  const int n_bits = std::bit_width(n);
  std::uint64_t value = bits(n_bits);
  while (value >= n) value = bits(n_bits);
  return value;
}

std::vector<std::int64_t> PythonRandom::sample_range(std::int64_t n, std::int64_t k) {
  if (k < 0 || k > n) fail(ErrorKind::internal, "sample: expected 0 to {} elements, found {}", n, k);
  const auto size = static_cast<std::uint64_t>(n);
  const auto count = static_cast<std::uint64_t>(k);
  std::vector<std::int64_t> drawn;
  drawn.reserve(count);
  if (size <= largest_pool(count)) {
    std::vector<std::int64_t> pool(size);
    std::iota(pool.begin(), pool.end(), std::int64_t{0});
    for (std::uint64_t left = size; drawn.size() < count; --left) {
      const std::uint64_t j = below(left);
      drawn.push_back(pool[j]);
      pool[j] = pool[left - 1];  // the last one that is left takes the place of the drawn one
    }
    return drawn;
  }
  std::unordered_set<std::uint64_t> seen;
  while (drawn.size() < count) {
    const std::uint64_t j = below(size);
    if (seen.insert(j).second) drawn.push_back(static_cast<std::int64_t>(j));
  }
  return drawn;
}

// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.3 and table 2.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr std::array<std::uint64_t, 2> kMultipliers{0xD2511F53u, 0xCD9E8D57u};
  constexpr std::array<std::uint32_t, 2> kWeyl{0x9E3779B9u, 0xBB67AE85u};
  const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); };
  const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product); };
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = kMultipliers[0] * counter[0];
    const std::uint64_t b = kMultipliers[1] * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key = {key[0] + kWeyl[0], key[1] + kWeyl[1]};
  }
  return counter;
}

double uniform_for(std::uint64_t seed, std::uint64_t prompt, std::uint64_t step) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto block = philox4x32({low(step), high(step), low(prompt), high(prompt)}, {low(seed), high(seed)});
  const std::uint64_t word = (static_cast<std::uint64_t>(block[1]) << 32) | block[0];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

std::array<double, 4> standard_normals(const std::array<std::uint32_t, 4>& words) {
  std::array<double, 4> normals{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log((words[pair] + 1.0) * 0x1p-32));  // the logarithm of (0, 1]
    const double angle = 2.0 * std::numbers::pi * 0x1p-32 * words[pair + 1];
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace kvdiv
