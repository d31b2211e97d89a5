// Reduction specs: their names, and the sums that they define, against additions written out by hand.
#include "kvdiv/numerics/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/half.h"
#include "kvdiv/numerics/half_sums.h"
#include "kvdiv/numerics/ops.h"
#include "numerics/order_sums.h"

namespace kvdiv {
namespace {

using testing::HasSubstr;
using Values = std::vector<double>;

TEST(Grammar, NamesRoundTrip) {
  for (const char* name : {"order:sequential", "order:pairwise", "order:blocked:32", "order:split-k:8", "order:kahan", "order:sequential@float16",
                           "order:blocked:1@float16", "order:prefill=blocked:32,decode=split-k:8", "order:prefill=kahan@float16,decode=kahan"}) {
    const Reductions r = parse_reductions(name);
    EXPECT_EQ(r.name(), name);
    EXPECT_EQ(parse_reductions(r.name()), r);
  }
}

TEST(Grammar, OtherSpellingsHaveOneNormalForm) {
  EXPECT_EQ(parse_reductions("order:sequential@float32").name(), "order:sequential");
  EXPECT_EQ(parse_reductions("order:decode=split-k:8,prefill=pairwise").name(), "order:prefill=pairwise,decode=split-k:8");
  EXPECT_EQ(parse_reductions("order:prefill=blocked:4,decode=blocked:4@float32").name(), "order:blocked:4");
  const Reductions r = parse_reductions("order:decode=split-k:8@float16,prefill=blocked:32");
  EXPECT_EQ(r.prefill, (ReductionSpec{SumOrder::blocked, 32, Accumulator::float32}));
  EXPECT_EQ(r.decode, (ReductionSpec{SumOrder::split_k, 8, Accumulator::float16}));
  EXPECT_EQ(r.of(1), r.decode);
  EXPECT_EQ(r.of(2), r.prefill);
}

TEST(Grammar, RefusalsNameThePieceAndWhatIsAllowed) {
  const std::pair<const char*, const char*> cases[] = {
      {"order:", "missing"},
      {"order", "missing"},
      {"order:sequental", "did you mean 'sequential'"},
      {"order:blocked", "needs a number, as in blocked:32"},
      {"order:blocked:", "found ''"},
      {"order:blocked:0", "found '0'"},
      {"order:split-k:-3", "found '-3'"},
      {"order:split-k:2x", "found '2x'"},
      {"order:blocked:1000001", "1 to 1,000,000"},
      {"order:blocked:99999999999999999999", "1 to 1,000,000"},
      {"order:kahan:2", "kahan takes no number"},
      {"order:sequential@float64", "'float64' is not an accumulator"},
      {"order:sequential@", "'' is not an accumulator"},
      {"order:prefill=sequential", "decode=SPEC is missing"},
      {"order:decode=sequential", "prefill=SPEC is missing"},
      {"order:prefill=sequential,prefill=kahan", "prefill is given twice"},
      {"order:prefill=sequential,decod=kahan", "did you mean 'decode'"},
      {"order:sequential,decode=kahan", "'sequential' has no key"},
      {"order:prefill=sequential,decode=kahan,", "'' has no key"},
      {"order:prefill=,decode=kahan", "missing"},
      {"order:SEQUENTIAL", "available: sequential, pairwise, blocked:N, split-k:N, kahan"},
      {"order: sequential", "is not an order of summation"},
  };
  for (const auto& [name, part] : cases) try {
      parse_reductions(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << name;
      EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("--backend"), HasSubstr(part))) << name;
    }
}

TEST(Grammar, ABackendIsMadeOfIt) {
  EXPECT_TRUE(make_ops("order:kahan", "eager")->row_invariant());
  EXPECT_TRUE(make_ops("order:prefill=kahan,decode=kahan@float32", "eager")->row_invariant());
  EXPECT_FALSE(make_ops("order:prefill=kahan,decode=pairwise", "eager")->row_invariant());
  EXPECT_FALSE(make_ops("order:prefill=kahan,decode=kahan@float16", "eager")->row_invariant());
  EXPECT_THROW(make_ops("order:kahan", "sdpa"), Error);
  EXPECT_THROW(make_ops("order", "eager"), Error);
  EXPECT_THROW(make_ops("torch:kahan", "eager"), Error) << "torch has no orders";
  EXPECT_THAT(backend_names(), testing::Contains("order"));
}

// ---- sums ------------------------------------------------------------------------------------------------------------

Values normals(std::size_t n, std::uint32_t trial, DType storage) {
  std::vector<float> drawn(n);
  fill_standard_normals(drawn, {91, 0, trial});
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(drawn[i]);
    out[i] = storage == DType::float16 ? round_to_half(x) : storage == DType::bfloat16 ? round_to_mantissa_bits(x, 7) : x;
  }
  return out;
}

/// A sum of long doubles and whether it is exact: then rounding it is the definition of one rounding.
std::pair<long double, bool> exact_sum(long double a, long double b) {
  const long double sum = a + b, b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part) == 0.0L};
}

/// The half nearest to x, from its neighbours: no rounding to double comes first.
double nearest_half(long double x) {
  const double near = round_to_half(static_cast<double>(x));
  double best = near;
  for (const double h : {near - ulp_of_half(near), near + ulp_of_half(near)}) {
    const long double d = std::fabs(static_cast<long double>(h) - x), d_best = std::fabs(static_cast<long double>(best) - x);
    const bool h_is_even = std::fmod(h / ulp_of_half(h), 2.0) == 0.0;
    if (d < d_best || (d == d_best && h_is_even)) best = h;
  }
  return best;
}

TEST(OrderedDot, EveryAdditionIsRoundedOnce) {
  std::int64_t n_exact = 0, n_all = 0;
  for (const DType storage : {DType::float16, DType::bfloat16, DType::float32})
    for (std::uint32_t trial = 0; trial < 40; ++trial) {
      const Values a = normals(40, 2 * trial, storage), b = normals(40, 2 * trial + 1, storage);
      double half = 0.0;
      float single = 0.0f;
      for (std::size_t n = 1; n <= a.size(); ++n) {
        const long double p = static_cast<long double>(a[n - 1]) * b[n - 1];  // 48 bits
        const auto [to_half, half_exact] = exact_sum(half, p);
        const auto [to_single, single_exact] = exact_sum(single, p);
        const std::span x(a.data(), n), y(b.data(), n);
        const double half_now = ordered_dot(x, y, {SumOrder::sequential, 0, Accumulator::float16}, storage);
        const double single_now = ordered_dot(x, y, {SumOrder::sequential, 0, Accumulator::float32}, storage);
        n_all += 2;
        n_exact += half_exact + single_exact;
        ASSERT_TRUE(!half_exact || half_now == nearest_half(to_half)) << name_of(storage) << " " << n;
        ASSERT_TRUE(!single_exact || single_now == static_cast<double>(static_cast<float>(to_single))) << name_of(storage) << " " << n;
        half = half_now, single = static_cast<float>(single_now);
      }
    }
  EXPECT_GT(n_exact, n_all * 95 / 100);
}

// 1 + 2⁻¹¹ is a tie of halves, and what decides it lies below FP64's last bit.
TEST(OrderedDot, ATieOfHalvesIsDecidedByTheExactSum) {
  EXPECT_EQ(sum_to_half(1.0, 0x1p-11), 1.0);
  EXPECT_EQ(sum_to_half(1.0, 0x1p-11 * (1.0 + 0x1p-46)), 1.0 + 0x1p-10);
  EXPECT_EQ(sum_to_half(1.0 + 0x1p-10, -0x1p-11 * (1.0 + 0x1p-46)), 1.0);
  EXPECT_EQ(sum_to_half(1.0 + 0x1p-10, 0x1p-11 * (1.0 - 0x1p-46)), 1.0 + 0x1p-10);
  EXPECT_EQ(sum_to_half(-1.0, -0x1p-11 * (1.0 + 0x1p-46)), -1.0 - 0x1p-10);
  EXPECT_EQ(sum_to_half(65504.0, 16.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum_to_half(65504.0, 16.0 * (1.0 - 0x1p-46)), 65504.0);
  EXPECT_EQ(sum_to_half(std::numeric_limits<double>::infinity(), -1.0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(sum_to_half(std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity())));
}

TEST(OrderedDot, NumbersAreBlocksAndParts) {
  // 2048 swallows ones in FP16 unless they are added to each other first.
  Values big(64, 1.0);
  big[0] = 2048.0;
  const Values ones(64, 1.0);
  const auto sum = [&](SumOrder order, std::int64_t n) { return ordered_dot(big, ones, {order, n, Accumulator::float16}, DType::float16); };
  EXPECT_EQ(sum(SumOrder::blocked, 64), 2048.0);
  EXPECT_EQ(sum(SumOrder::blocked, 1000), 2048.0);
  EXPECT_EQ(sum(SumOrder::blocked, 16), 2048.0 + 48.0);
  EXPECT_EQ(sum(SumOrder::blocked, 1), 2048.0);
  EXPECT_EQ(sum(SumOrder::split_k, 1), 2048.0);
  EXPECT_EQ(sum(SumOrder::split_k, 2), 2048.0 + 32.0);
  EXPECT_EQ(sum(SumOrder::split_k, 5), 2048.0 + 3 * 12.0 + 12.0);  // parts of 13: 13, 13, 13, 13, 12 (13 is a tie to 2060)
  EXPECT_EQ(sum(SumOrder::split_k, 1000), 2048.0) << "parts of one term";
}

TEST(OrderedDot, Float64AccumulatesInDouble) {
  const Values a{1.0, 0x1p-40}, b{1.0, 1.0};
  for (const auto& [order, name] : EnumNames<SumOrder>::values)
    for (const auto& [accumulator, accumulator_name] : EnumNames<Accumulator>::values)
      EXPECT_EQ(ordered_dot(a, b, {order, takes_number(order) ? 2 : 0, accumulator}, DType::float64), 1.0 + 0x1p-40) << name;
}

TEST(OrderedDot, EveryOrderIsAnotherOne) {
  for (const DType storage : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
    for (const auto& [accumulator, accumulator_name] : EnumNames<Accumulator>::values)
      for (const auto& [order, name] : EnumNames<SumOrder>::values) {
        if (order == SumOrder::sequential) continue;
        int n_other = 0;
        for (std::uint32_t trial = 0; trial < 20; ++trial) {
          const Values a = normals(100, 2 * trial, storage), b = normals(100, 2 * trial + 1, storage);
          n_other += ordered_dot(a, b, {order, takes_number(order) ? 8 : 0, accumulator}, storage) != ordered_dot(a, b, {SumOrder::sequential, 0, accumulator}, storage);
        }
        EXPECT_GT(n_other, 2) << name << " " << accumulator_name << " " << name_of(storage);
      }
}

}  // namespace
}  // namespace kvdiv
