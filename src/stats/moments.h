#pragma once
// What several tests need of their values first: only the finite ones, in a common scale, and their mean and spread.
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace kvdiv {

struct Moments {
  double n = 0.0;
  double mean = 0.0;  ///< within the range of the values, whatever the rounding: equal values have exactly their mean
  double squares = 0.0;  ///< Σ (x − mean)², exactly 0 for equal values
};

/// Two-pass with compensated sums (Chan, Golub & LeVeque, 1983). Values must be finite; no values: all 0.
Moments moments(std::span<const double> values);

std::vector<double> finite_values(std::span<const double> values);

/// The columns, all of one length (internal error naming `who` if not), without the rows that have a value which is not
/// finite.
std::vector<std::vector<double>> finite_rows(std::span<const std::span<const double>> columns, std::string_view who);

/// The binary exponent of the largest absolute value of all, 0 if there is none but zeros. Values divided by two to it
/// (exactly, but for what falls below 1e-300 of the largest) are at most 1: their squares neither overflow nor vanish.
int common_exponent(std::initializer_list<std::span<const double>> all);
void divide_by_power(std::vector<double>& values, int exponent);

}  // namespace kvdiv
