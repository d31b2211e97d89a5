#include "kvdiv/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/text.h"

namespace kvdiv {
namespace {

using Block = std::array<std::uint32_t, 4>;

Json golden() { return Json::parse(std::ifstream(KVDIV_TEST_ROOT "/tests/base/golden/random_golden.json")); }

// Published known answers of Philox 4x32-10: all zero, all one, and the digits of pi.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformFor, IsInTheUnitIntervalAndDependsOnEveryArgument) {
  std::set<double> seen;
  const std::array<std::uint64_t, 5> values{0, 1, 2, std::uint64_t{1} << 32, ~std::uint64_t{0}};
  for (auto seed : values)
    for (auto prompt : values)
      for (auto step : values) {
        const double u = uniform_for(seed, prompt, step);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        EXPECT_EQ(u, uniform_for(seed, prompt, step));
        seen.insert(u);
      }
  EXPECT_EQ(seen.size(), values.size() * values.size() * values.size());
}

TEST(UniformFor, IsTheTop53BitsOfTheFirstTwoWords) {
  const std::uint64_t word = (std::uint64_t{0xe169c58d} << 32) | 0x6627e8d5u;
  EXPECT_EQ(uniform_for(0, 0, 0), static_cast<double>(word >> 11) / 9007199254740992.0);
}

// Two-sided: the statistic of 64 equal cells must be neither too large (biased) nor too small (too regular).
TEST(UniformFor, FillsCellsEvenlyButNotTooEvenly) {
  constexpr int kCells = 64, kDraws = 64000;
  std::array<int, kCells> count{};
  for (int i = 0; i < kDraws; ++i)
    ++count[static_cast<std::size_t>(
        uniform_for(7, static_cast<std::uint64_t>(i / 128), static_cast<std::uint64_t>(i % 128)) * kCells)];
  double chi2 = 0.0;
  for (int c : count) chi2 += (c - 1000.0) * (c - 1000.0) / 1000.0;
  EXPECT_GT(chi2, 33.0);   // 0.1 % quantile at 63 degrees of freedom
  EXPECT_LT(chi2, 103.5);  // 99.9 %
}

TEST(PythonRandom, DrawsThePublishedSample) {
  const auto drawn = PythonRandom(42).sample_range(1319, 700);
  ASSERT_EQ(drawn.size(), 700u);
  const std::vector<std::int64_t> first(drawn.begin(), drawn.begin() + 10), last(drawn.end() - 5, drawn.end());
  EXPECT_EQ(first, (std::vector<std::int64_t>{1309, 228, 51, 563, 501, 457, 285, 209, 1116, 178}));
  EXPECT_EQ(last, (std::vector<std::int64_t>{802, 345, 710, 284, 431}));
}

TEST(PythonRandom, SamplesAsPythonDoes) {
  const Json cases = golden()["samples"];
  ASSERT_GE(cases.size(), 200u);
  for (const auto& c : cases) {
    const auto n = c["n"].get<std::int64_t>(), k = c["k"].get<std::int64_t>();
    const auto drawn = PythonRandom(c["seed"].get<std::uint64_t>()).sample_range(n, k);
    std::string text;
    for (auto value : drawn) text += (text.empty() ? "" : ",") + std::to_string(value);
    const auto ten = std::min<std::ptrdiff_t>(10, std::ssize(drawn));
    EXPECT_EQ(std::vector<std::int64_t>(drawn.begin(), drawn.begin() + ten),
              c["first"].get<std::vector<std::int64_t>>())
        << c;
    EXPECT_EQ(sha256_hex(text), c["sha256"].get<std::string>()) << c;
    EXPECT_EQ(std::set<std::int64_t>(drawn.begin(), drawn.end()).size(), static_cast<std::size_t>(k));
  }
}

TEST(PythonRandom, GivesBitsAndBoundedNumbersAsPythonDoes) {
  const std::array<std::uint64_t, 10> bounds{
      1, 2, 3, 7, 1319, (1ull << 32) - 1, 1ull << 32, (1ull << 32) + 1, (1ull << 63) + 1, ~0ull};
  const Json cases = golden()["bits"];
  for (const auto& c : cases) {
    PythonRandom rng(c["seed"].get<std::uint64_t>());
    for (int k = 1; k <= 64; ++k)
      EXPECT_EQ(rng.bits(k), c["bits"][static_cast<std::size_t>(k - 1)].get<std::uint64_t>()) << k;
    for (std::size_t i = 0; i < bounds.size(); ++i)
      EXPECT_EQ(rng.below(bounds[i]), c["below"][i].get<std::uint64_t>()) << bounds[i];
  }
}

TEST(PythonRandom, RefusesWhatHasNoMeaning) {
  PythonRandom rng(0);
  EXPECT_THROW(rng.below(0), Error);
  EXPECT_THROW(rng.bits(0), Error);
  EXPECT_THROW(rng.bits(65), Error);
  EXPECT_THROW(rng.sample_range(5, 6), Error);
  EXPECT_THROW(rng.sample_range(5, -1), Error);
}

}  // namespace
}  // namespace kvdiv
