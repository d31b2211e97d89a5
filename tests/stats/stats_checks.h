#pragma once
// What the tests of stats share: samples, and the promise that results are numbers or null with a reason, never NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

using Values = std::vector<double>;
using Clusters = std::vector<std::int32_t>;
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Values normal_values(std::size_t n, std::uint64_t seed, double mean = 0.0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, 1.0);
  Values v(n);
  for (double& x : v) x = normal(random);
  return v;
}

inline Values mapped(Values v, double factor, double shift) {
  for (double& x : v) x = factor * x + shift;
  return v;
}

/// Visits the fields: every double that is there is finite.
struct FiniteFields {
  template <class T>
  void field(std::string_view, T&, std::string_view = {}) {}
  void field(std::string_view key, std::optional<double>& value, std::string_view = {}) {
    if (value) {
      EXPECT_TRUE(std::isfinite(*value)) << key;
    }
  }
};

template <Described S>
void expect_finite(S s) {
  FiniteFields visitor;
  describe_fields(visitor, s);
}

inline void expect_near(const std::optional<double>& found, const std::optional<double>& expected, double relative) {
  ASSERT_EQ(found.has_value(), expected.has_value());
  if (found) {
    EXPECT_NEAR(*found, *expected, relative * std::max(1e-300, std::abs(*expected)));
  }
}

}  // namespace kvdiv
