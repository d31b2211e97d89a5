// Both arms against logits of the published eager implementation, made by scripts/make_golden.py on tiny checkpoints whose
// traits are all off their defaults. On the machine that made them they agree bit for bit (scripts/compare_hf.py); other
// CPUs have other kernels, so here they agree within a few roundings of the dtype, and differ from the float64 golden by
// at least what that dtype's rounding must leave: a silent promotion would fail the lower bound.
#include <gtest/gtest.h>

#include <algorithm>

#include "kvdiv/decode/stepper.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

struct Tolerance {
  DType dtype;
  double from_golden;       ///< at most this far from the golden of the same dtype, relative to max |logit|
  double from_fp64_at_least, from_fp64_at_most;  ///< distance to the float64 golden, likewise
};

constexpr Tolerance kTolerances[] = {
    {DType::float16, 6e-3, 2e-5, 2e-2},
    {DType::bfloat16, 5e-2, 2e-4, 2e-1},
    {DType::float32, 5e-6, 1e-9, 2e-5},
    {DType::float64, 1e-12, 0.0, 1e-12},
};

double largest(const std::vector<double>& values) {
  double out = 0.0;
  for (const double v : values) out = std::max(out, std::abs(v));
  return out;
}

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, Tolerance>> {};

/// Feeds the golden's own tokens, so that a near-tie decided otherwise on another CPU changes nothing.
void compare_arm(const Golden& golden, const Tolerance& tolerance, const std::string& arm, Stepper& stepper) {
  const std::string dtype(name_of(tolerance.dtype));
  const auto tokens = golden.ids("tokens." + dtype), reference_tokens = golden.ids("tokens.float64");
  double distance = 0.0;
  bool same_prefix_as_fp64 = true;
  for (std::int64_t step = 0; step < golden.n_rows("logits_" + arm + "." + dtype); ++step) {
    const at::Tensor logits = step == 0 ? stepper.prefill(golden.ids("ids")) : stepper.step(tokens[static_cast<std::size_t>(step) - 1]);
    ASSERT_EQ(logits.scalar_type(), scalar_type(tolerance.dtype));
    const auto ours = to_doubles(logits), theirs = golden.row("logits_" + arm + "." + dtype, step);
    EXPECT_LE(max_abs_difference(ours, theirs), tolerance.from_golden * largest(theirs)) << arm << " step " << step;
    if (same_prefix_as_fp64) {
      const auto exact = golden.row("logits_" + arm + ".float64", step);
      distance = std::max(distance, max_abs_difference(ours, exact) / largest(exact));
    }
    same_prefix_as_fp64 = same_prefix_as_fp64 && tokens[static_cast<std::size_t>(step)] == reference_tokens[static_cast<std::size_t>(step)];
  }
  EXPECT_GE(distance, tolerance.from_fp64_at_least);
  EXPECT_LE(distance, tolerance.from_fp64_at_most);
}

TEST_P(GoldenTest, OnMatches) {
  const auto& [name, tolerance] = GetParam();
  const LoadedModel model = load(golden_dir(name), tolerance.dtype);
  CachedStepper on(model.decoder, 64);
  compare_arm(Golden(name), tolerance, "on", on);
}

TEST_P(GoldenTest, OffMatches) {
  const auto& [name, tolerance] = GetParam();
  const LoadedModel model = load(golden_dir(name), tolerance.dtype);
  FullStepper off(model.decoder);
  compare_arm(Golden(name), tolerance, "off", off);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         testing::Combine(testing::ValuesIn(golden_models()), testing::ValuesIn(kTolerances)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::string(name_of(std::get<1>(info.param).dtype));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvdiv::test
