#pragma once
// How stats asks Boost.Math, and how what it answers leaves: no exceptions inside, no NaN outside.
#include <boost/math/policies/policy.hpp>
#include <cmath>
#include <optional>

namespace kvdiv {

/// Boost reports domain and evaluation errors as NaN, not as exceptions; optional_number turns those into null.
using Quiet =
    boost::math::policies::policy<boost::math::policies::domain_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::pole_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::overflow_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::evaluation_error<boost::math::policies::ignore_error>>;

inline std::optional<double> optional_number(double x) {
  return std::isfinite(x) ? std::optional<double>(x) : std::nullopt;
}

}  // namespace kvdiv
