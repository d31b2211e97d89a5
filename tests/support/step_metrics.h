#pragma once
// Holds metrics that were computed in another order against those of compare_logits().
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "kvdiv/base/step_metrics.h"

namespace kvdiv {

/// Exact where `expected` is 0, infinite or NaN, which no order of summation may change.
inline void expect_close(double found, double expected, double tolerance, const char* what) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(found)) << what << ": " << found;
  else if (expected == 0.0 || std::isinf(expected))
    EXPECT_EQ(found, expected) << what;
  else
    EXPECT_NEAR(found / expected, 1.0, tolerance) << what << ": " << found << " for " << expected;
}

/// The divergences to a relative `tolerance`, all else exactly.
inline void expect_metrics(const StepMetrics& found, const StepMetrics& expected, double tolerance = 1e-13) {
  expect_close(found.kl_on_off_nats, expected.kl_on_off_nats, tolerance, "KL(on, off)");
  expect_close(found.kl_off_on_nats, expected.kl_off_on_nats, tolerance, "KL(off, on)");
  expect_close(found.js_nats, expected.js_nats, tolerance, "JS");
  expect_close(found.max_abs_dlogit, expected.max_abs_dlogit, 0.0, "largest difference");
  expect_close(found.margin_on, expected.margin_on, 0.0, "margin of on");
  expect_close(found.margin_off, expected.margin_off, 0.0, "margin of off");
  EXPECT_EQ(found.bit_equal, expected.bit_equal);
  EXPECT_EQ(found.top1_equal, expected.top1_equal);
  EXPECT_EQ(found.tie_on, expected.tie_on);
  EXPECT_EQ(found.tie_off, expected.tie_off);
  EXPECT_EQ(found.n_nonfinite, expected.n_nonfinite);
  EXPECT_EQ(found.top1_on, expected.top1_on);
  EXPECT_EQ(found.top1_off, expected.top1_off);
}

}  // namespace kvdiv
