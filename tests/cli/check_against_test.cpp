// When is one report worse than another? Each rule with a pair of reports on either side of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cli/check_against.h"
#include "kvdiv/base/error.h"
#include "support/run_report.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

Comparison compare(const Json& now, const Json& before) { return compare_reports(now, "now.json", before, "before.json"); }

/// The status of one metric after a change of the new report.
ComparedMetric metric(const std::string& name, const std::function<void(Json& condition)>& change) {
  Json now = sample_report();
  change(now["conditions"][0]);
  for (const ComparedMetric& m : compare(now, sample_report()).metrics)
    if (m.metric == name) return m;
  ADD_FAILURE() << name;
  return {};
}

TEST(Against, TheSameIsNoRegression) {
  const Comparison c = compare(sample_report(), sample_report());
  EXPECT_EQ(c.status, LimitStatus::ok) << c.sentence;
  EXPECT_TRUE(c.differences.empty());
  ASSERT_EQ(c.metrics.size(), 4u);
  for (const ComparedMetric& m : c.metrics) EXPECT_EQ(m.how, "unchanged") << m.metric;
  EXPECT_EQ(c.sentence, "Against before.json, none of 4 numbers regressed.");
}

/// The old interval ends at 1.5e-6.
TEST(Against, MeansByTheirIntervals) {
  const auto with = [](double mean, const Json& low) {
    return metric("kl_on_off_nats mean", [&](Json& c) {
      c["same_prefix"]["kl_on_off_nats"]["mean"] = mean;
      c["same_prefix"]["kl_on_off_nats"]["ci_low"] = low;
    });
  };
  EXPECT_EQ(with(9e-7, 0.0).status, LimitStatus::ok);
  EXPECT_EQ(with(9e-7, 0.0).how, "smaller");
  EXPECT_EQ(with(5e-6, 1.5e-6).status, LimitStatus::ok) << "they touch";
  EXPECT_THAT(with(5e-6, 1.5e-6).how, HasSubstr("overlap"));
  EXPECT_EQ(with(5e-6, 1.6e-6).status, LimitStatus::violated);
  EXPECT_EQ(with(5e-6, nullptr).status, LimitStatus::invalid) << "one prompt has no interval";
  EXPECT_EQ(with(1e-6, nullptr).status, LimitStatus::ok) << "what is not larger needs none";
}

/// The old largest value is 11e-3, its mean's interval ends at 1.5e-3.
TEST(Against, LargestValuesByTheirSizeOrTheMeansInterval) {
  const auto with = [](double max, const Json& low) {
    return metric("max_abs_dlogit max", [&](Json& c) {
             c["same_prefix"]["max_abs_dlogit"]["max"] = max;
             c["same_prefix"]["max_abs_dlogit"]["ci_low"] = low;
           })
        .status;
  };
  EXPECT_EQ(with(21.9e-3, 0.0), LimitStatus::ok);
  EXPECT_EQ(with(22.1e-3, 0.0), LimitStatus::violated);
  EXPECT_EQ(with(22.1e-3, nullptr), LimitStatus::violated) << "needs no interval";
  EXPECT_EQ(with(11.1e-3, 1.6e-3), LimitStatus::violated);
  EXPECT_EQ(with(10.9e-3, 1.6e-3), LimitStatus::ok);
}

/// Bit-equality lost is a regression, however small the difference: the old largest value is 0.
TEST(Against, BitEqualityLost) {
  Json now = sample_report(), before = sample_report();
  before["conditions"][0]["same_prefix"]["max_abs_dlogit"] = sample_stat(0.0);
  before["conditions"][0]["same_prefix"]["kl_on_off_nats"] = sample_stat(0.0);
  now["conditions"][0]["same_prefix"]["max_abs_dlogit"] = sample_stat(1e-300);
  now["conditions"][0]["same_prefix"]["kl_on_off_nats"] = sample_stat(0.0);
  EXPECT_EQ(compare(now, before).status, LimitStatus::violated);
}

/// 2 of 64 flips before. Fisher's exact test, two-sided: 9 of 64 p = 0.0542, 10 of 64 p = 0.0300.
TEST(Against, RatesByFishersExactTest) {
  const auto with = [](int flips) {
    return metric("flip_rate", [&](Json& c) {
      c["same_prefix"]["flips"] = flips;
      c["same_prefix"]["flip_rate"] = flips / 64.0;
    });
  };
  EXPECT_EQ(with(1).how, "smaller");
  EXPECT_EQ(with(9).status, LimitStatus::ok);
  EXPECT_THAT(with(9).how, HasSubstr("adjusted p 0.05"));
  EXPECT_EQ(with(10).status, LimitStatus::violated);
  EXPECT_EQ(metric("flip_rate", [](Json& c) { c["same_prefix"].erase("flips"); }).status, LimitStatus::invalid);
  EXPECT_EQ(metric("flip_rate", [](Json& c) { c["same_prefix"]["flip_rate"] = nullptr; }).status, LimitStatus::invalid);
}

/// Two of four pairs against four of four may be chance; 20 of 40 against 40 of 40 is not.
TEST(Against, DivergenceCountsPairs) {
  Json now = sample_report(), before = sample_report();
  now["conditions"][0]["divergence_rate"] = 1.0;
  EXPECT_EQ(compare(now, before).status, LimitStatus::ok);
  now["conditions"][0]["n_pairs"] = before["conditions"][0]["n_pairs"] = 40;
  EXPECT_EQ(compare(now, before).status, LimitStatus::violated);
}

/// Many rates are many tests: p = 0.0300 alone is a regression, among twenty of its kind it is not.
TEST(Against, RatesAreAdjustedForBeingMany) {
  Json now = sample_report(), before = sample_report();
  for (int i = 0; i < 20; ++i) {
    now["conditions"].push_back(sample_condition("float16", "order:blocked:" + std::to_string(i + 1)));
    before["conditions"].push_back(now["conditions"].back());
    now["conditions"].back()["same_prefix"]["flips"] = 10;
    now["conditions"].back()["same_prefix"]["flip_rate"] = 10 / 64.0;
  }
  EXPECT_EQ(compare(now, before).status, LimitStatus::ok);
}

TEST(Against, OtherPromptsAreInvalid) {
  const auto why = [](const std::function<void(Json& now)>& change) {
    Json now = sample_report();
    change(now);
    const Comparison c = compare(now, sample_report());
    EXPECT_EQ(c.status, LimitStatus::invalid);
    EXPECT_THAT(render_text(c), HasSubstr("invalid"));
    EXPECT_EQ(junit_suite(c).cases.front().status, LimitStatus::invalid);
    const Json json = to_json(c);
    for (const Json& m : json["metrics"]) EXPECT_EQ(m["status"], "invalid");
    return c.sentence;
  };
  EXPECT_THAT(why([](Json& r) { r["data"]["sha256"] = "beef"; }), HasSubstr("data.sha256 is \"beef\", was \"feed\""));
  EXPECT_THAT(why([](Json& r) { r["data"].erase("sha256"); }), HasSubstr("data.sha256 is missing"));
  EXPECT_THAT(why([](Json& r) { r["data"]["indices"][2] = 9; }), HasSubstr("data.indices are 4, were 4; the first difference is number 3: 9, was 7"));
  EXPECT_THAT(why([](Json& r) { r["data"]["indices"].push_back(9); }), HasSubstr("are 5, were 4; the first difference is number 5: 9, was not there"));
  EXPECT_THAT(why([](Json& r) { r["data"]["indices"] = nullptr; }), HasSubstr("data.indices is missing"));
  EXPECT_THAT(why([](Json& r) { r["complete"] = false; }), HasSubstr("of the new report, the run is not complete"));
  EXPECT_THAT(why([](Json& r) { r["conditions"][0]["dtype"] = "float32"; }), HasSubstr("no condition is in both reports"));
}

TEST(Against, AnInvalidOldReportIsNoMeasure) {
  Json before = sample_report();
  before["controls"]["on_on_bit_equal"] = false;
  const Comparison c = compare(sample_report(), before);
  EXPECT_EQ(c.status, LimitStatus::invalid);
  EXPECT_THAT(c.sentence, HasSubstr("of the old report, the control on_on_bit_equal failed"));
  before = sample_report();
  before["conditions"][0]["same_prefix"]["kl_on_off_nats"]["n_nonfinite"] = 2;
  EXPECT_EQ(compare(sample_report(), before).status, LimitStatus::invalid);
  before["experiment"]["name"] = "noise";
  EXPECT_THROW(compare(sample_report(), before), Error);
}

TEST(Against, NamesEveryDifference) {
  Json now = sample_report();
  now["environment"]["cpu"] = "two";
  now["environment"]["env_vars"]["OMP_NUM_THREADS"] = "1";
  now["numerics"].erase("invariant_kernels");
  now["tool"]["git_commit"] = "def";
  now["model"]["weights_sha256"] = "78";
  now["model"]["path"] = "b";
  now["experiment"]["params"]["max_new_tokens"] = 32;
  now["conditions"].push_back(sample_condition("bfloat16"));
  Json before = sample_report();
  before["conditions"].push_back(sample_condition("float64"));
  const Comparison c = compare(now, before);
  EXPECT_EQ(c.status, LimitStatus::ok) << "named, and not judged: " << c.sentence;
  EXPECT_THAT(c.differences, testing::ElementsAre("tool.git_commit: \"def\", was \"abc\"", "environment.cpu: \"two\", was \"one\"", "environment.env_vars.OMP_NUM_THREADS: \"1\", was not there",
                                                  "numerics.invariant_kernels: not there, was \"AVX2\"", "model.weights_sha256: \"78\", was \"77\"", "experiment.params.max_new_tokens: 32, was 16",
                                                  "condition bfloat16/torch/greedy: not in the old report", "condition float64/torch/greedy: only in the old report"));
  EXPECT_EQ(to_json(c)["differences"].size(), 8u);
  for (const std::string& difference : c.differences) EXPECT_THAT(render_text(c), HasSubstr("differs: " + difference));
}

/// Whatever an old report holds: a comparison or an Error.
TEST(Against, HostileReportsAreReadOrRefused) {
  const Json flat = sample_report().flatten();
  for (const auto& [pointer, old] : flat.items())
    for (const Json& value : {Json(nullptr), Json(-1), Json(1e308), Json("x"), Json::array({1, "a"}), Json::object({{"a", 1}}), Json(18446744073709551615u)}) {
      Json report = sample_report();
      report[Json::json_pointer(pointer)] = value;
      for (const bool is_old : {false, true}) try {
          const Comparison c = is_old ? compare(sample_report(), report) : compare(report, sample_report());
          EXPECT_FALSE(render_text(c).empty() || to_json(c).empty() || junit_suite(c).cases.empty());
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::unreadable) << pointer << " = " << value;
        }
    }
}

}  // namespace
}  // namespace kvdiv::test
