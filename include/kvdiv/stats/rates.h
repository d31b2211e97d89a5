#pragma once
// Two rates, each a count out of a number of trials.
#include <cstdint>

#include "kvdiv/stats/hypothesis.h"

namespace kvdiv {

/// Fisher's exact test (1935) that x of n_x and y of n_y have one rate; variant "two-sided, by probability". The trials are
/// taken as independent, within a sample and between the two.
/// - p: the probability, given x + y, of all tables that are no more probable than the one seen (within a relative 1e-7, as
///   in R, so that tables of equal probability count in spite of rounding); 0 only below 1e-300.
/// - effect: x/n_x − y/n_y. n: n_x + n_y. statistic and min_detectable_effect are null.
/// Null with a reason: everything if a count is impossible (negative, or above its trials), if there are more than 2³¹ trials
/// in all, or if one of the samples has none.
TestResult fisher_exact(std::int64_t x, std::int64_t n_x, std::int64_t y, std::int64_t n_y);

}  // namespace kvdiv
