// Reports held against contracts: what passes, what is violated, and what may not be judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/report/contract_check.h"
#include "kvdiv/report/table.h"
#include "support/run_report.h"

namespace kvdiv {
namespace {

using test::sample_condition;
using test::sample_contract;
using test::sample_report;
using testing::HasSubstr;

ContractCheck check(const Json& contract, const Json& report) { return check_contract(parse_contract(contract, "c.json"), report, "r.json"); }

std::string text(const Json& contract, const Json& report) {
  const Contract c = parse_contract(contract, "c.json");
  return render_text(c, check_contract(c, report, "r.json"));
}

TEST(Check, ExactlyTheLimitKeepsIt) {
  Json contract = sample_contract();
  Json& limit = contract["limits"][0];
  const double measured = sample_report()["conditions"][0]["same_prefix"]["kl_on_off_nats"]["mean"];
  limit["at_most"] = measured;
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::ok);
  limit["at_most"] = std::nextafter(measured, 0.0);
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::violated);
  limit["at_most"] = std::nextafter(measured, 1.0);
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::ok);
  limit.erase("at_most");
  limit["at_least"] = measured;
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::ok);
  limit["at_least"] = std::nextafter(measured, 1.0);
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::violated);
  limit["at_least"] = std::nextafter(measured, 0.0);
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::ok);
}

/// Each metric and statistic is read from its own place: the report holds another number in each.
TEST(Check, EveryMetricIsReadFromItsPlace) {
  Json report = sample_report();
  Json& condition = report["conditions"][0];
  double next = 0.0;
  const std::function<void(Json&)> number = [&](Json& j) {
    for (auto& [key, value] : j.items()) {
      if (value.is_object()) number(value);
      if (value.is_number() && key.rfind("n_", 0) != 0) value = (next += 1e-3);
    }
  };
  number(condition);
  std::set<double> seen;
  std::size_t n = 0;
  for (const LimitMetric& metric : limit_metrics())
    for (const char* clock : {"same_prefix", "free_running"})
      for (const std::string_view statistic : limit_statistics()) {
        if (!metric.is_stat && statistic != "mean") continue;
        if (!metric.is_per_step && std::string(clock) != "same_prefix") continue;
        Json contract = sample_contract();
        Json& limit = contract["limits"][0];
        limit = {{"dtype", "float16"}, {"clock", clock}, {"metric", metric.name}, {"at_most", 1.0}, {"reason", "r"}};
        if (metric.is_stat) limit["statistic"] = statistic;
        const ContractCheck result = check(contract, report);
        ASSERT_EQ(result.results.size(), 1u);
        const Json& place = metric.is_per_step ? condition[clock] : condition;
        const Json& value = metric.name == "accuracy_diff" ? place["accuracy"]["diff"] : place[std::string(metric.name)];
        EXPECT_EQ(result.results[0].measured, (metric.is_stat ? value[std::string(statistic)] : value).get<double>()) << limit;
        EXPECT_EQ(result.results[0].ci_high.has_value(), metric.is_stat && statistic == "mean");
        EXPECT_EQ(result.status, LimitStatus::ok) << result.sentence;
        EXPECT_TRUE(seen.insert(*result.results[0].measured).second) << limit << " reads what another limit reads";
        ++n;
      }
  EXPECT_EQ(n, 5u * 2 * 11 + 4 * 2 + 11 + 2);
}

TEST(Check, AppliesToEveryMatchingCondition) {
  Json report = sample_report();
  report["conditions"].push_back(sample_condition("float16", "invariant"));
  report["conditions"].push_back(sample_condition("float16", "torch", "top-k"));
  report["conditions"].push_back(sample_condition("float32"));
  report["conditions"][1]["same_prefix"]["kl_on_off_nats"]["mean"] = 0;
  report["conditions"][2]["same_prefix"]["kl_on_off_nats"]["mean"] = 1;
  const auto conditions = [&](const Json& more) {
    Json contract = sample_contract();
    contract["limits"][0].update(more);
    std::vector<std::string> out;
    for (const LimitResult& r : check(contract, report).results) out.push_back(r.condition + " " + std::string(name_of(r.status)));
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(conditions(Json::object()), (Names{"float16/torch/greedy ok", "float16/invariant/greedy ok", "float16/torch/top-k violated"}));
  EXPECT_EQ(conditions({{"backend", "torch"}}), (Names{"float16/torch/greedy ok", "float16/torch/top-k violated"}));
  EXPECT_EQ(conditions({{"strategy", "greedy"}}), (Names{"float16/torch/greedy ok", "float16/invariant/greedy ok"}));
  EXPECT_EQ(conditions({{"backend", "torch"}, {"strategy", "top-k"}}), (Names{"float16/torch/top-k violated"}));
  EXPECT_EQ(conditions({{"dtype", "float32"}}), (Names{"float32/torch/greedy ok"}));
  EXPECT_EQ(conditions({{"dtype", "bfloat16"}}), (Names{" invalid"}));
}

/// What is too little, broken or absent is neither a pass nor a violation, with a limit that would hold and with one that
/// would not.
struct NoMeasurement {
  const char* name;
  std::function<void(Json& report, Json& contract)> spoil;
  std::string says;

  friend std::ostream& operator<<(std::ostream& out, const NoMeasurement& n) { return out << n.name; }
};

class Invalid : public testing::TestWithParam<NoMeasurement> {};

TEST_P(Invalid, IsNeitherAPassNorAViolation) {
  for (const double bound : {1e9, 0.0}) {
    Json report = sample_report(), contract = sample_contract();
    contract["limits"][0]["at_most"] = bound;
    ASSERT_EQ(check(contract, report).status, bound > 0 ? LimitStatus::ok : LimitStatus::violated);
    GetParam().spoil(report, contract);
    const ContractCheck result = check(contract, report);
    EXPECT_EQ(result.status, LimitStatus::invalid);
    for (const LimitResult& r : result.results) EXPECT_EQ(r.status, LimitStatus::invalid) << r.condition;
    EXPECT_THAT(result.sentence, testing::AllOf(testing::StartsWith("The check is invalid: "), HasSubstr(GetParam().says)));
    EXPECT_THAT(text(contract, report), testing::AllOf(HasSubstr("invalid: "), HasSubstr(GetParam().says)));
  }
}

Json& kl(Json& report) { return report["conditions"][0]["same_prefix"]["kl_on_off_nats"]; }

INSTANTIATE_TEST_SUITE_P(
    All, Invalid,
    testing::Values(
        NoMeasurement{"incomplete", [](Json& r, Json&) { r["complete"] = false; }, "not complete"},
        NoMeasurement{"complete is not said", [](Json& r, Json&) { r.erase("complete"); }, "not complete"},
        NoMeasurement{"verdict invalid", [](Json& r, Json&) { r["verdict"]["kind"] = "invalid"; }, "verdict is invalid"},
        NoMeasurement{"no verdict", [](Json& r, Json&) { r["verdict"] = nullptr; }, "no verdict"},
        NoMeasurement{"a control failed", [](Json& r, Json&) { r["controls"]["order_independent"] = false; }, "control order_independent failed"},
        NoMeasurement{"a count failed", [](Json& r, Json&) { r["controls"]["n_tokens_computed_off"]["computed"] = 91; }, "control n_tokens_computed_off failed"},
        NoMeasurement{"a control is missing", [](Json& r, Json&) { r["controls"].erase("on_on_bit_equal"); }, "on_on_bit_equal, which the contract demands"},
        NoMeasurement{"no controls", [](Json& r, Json&) { r.erase("controls"); }, "which the contract demands"},
        NoMeasurement{"a control is null", [](Json& r, Json&) { r["controls"]["n_tokens_computed_on"] = nullptr; }, "n_tokens_computed_on, which the contract demands"},
        NoMeasurement{"too few pairs", [](Json&, Json& c) { c["minimum"]["n_pairs"] = 5; }, "n_pairs is 4, the contract asks for 5"},
        NoMeasurement{"too few steps", [](Json&, Json& c) { c["minimum"]["n_steps"] = 65; }, "same_prefix.n_steps is 64, the contract asks for 65"},
        NoMeasurement{"pairs are not counted", [](Json& r, Json&) { r["conditions"][0].erase("n_pairs"); }, "n_pairs is not in the report"},
        NoMeasurement{"null", [](Json& r, Json&) { kl(r)["mean"] = nullptr; }, "kl_on_off_nats.mean is null"},
        NoMeasurement{"missing", [](Json& r, Json&) { kl(r).erase("mean"); }, "kl_on_off_nats.mean is null or not in the report"},
        NoMeasurement{"a text", [](Json& r, Json&) { kl(r)["mean"] = "0"; }, "kl_on_off_nats.mean is not a number"},
        NoMeasurement{"non-finite values", [](Json& r, Json&) { kl(r)["n_nonfinite"] = 3; }, "3 of its values are not finite"},
        NoMeasurement{"non-finite values, not counted as a number", [](Json& r, Json&) { kl(r)["n_nonfinite"] = "0"; }, "values are not finite"},
        NoMeasurement{"the clock was not run", [](Json& r, Json& c) { c["limits"][0]["clock"] = "free_running"; r["conditions"][0]["free_running"] = nullptr; }, "free_running is not in the report: the run's --clock"},
        NoMeasurement{"no such condition", [](Json&, Json& c) { c["limits"][0]["dtype"] = "float64"; }, "no condition of the report matches; the report has float16/torch/greedy"},
        NoMeasurement{"a backend with a typing error", [](Json&, Json& c) { c["limits"][0]["backend"] = "invarant"; }, "no condition of the report matches"},
        NoMeasurement{"no conditions", [](Json& r, Json&) { r["conditions"] = Json::array(); }, "the report has none"},
        NoMeasurement{"conditions are null", [](Json& r, Json&) { r["conditions"] = nullptr; }, "the report has none"}));

TEST(Check, InvalidComesBeforeViolated) {
  Json contract = sample_contract();
  contract["limits"].push_back(contract["limits"][0]);
  contract["limits"][0]["at_most"] = 0;
  EXPECT_EQ(check(contract, sample_report()).status, LimitStatus::violated);
  contract["limits"][1]["dtype"] = "float64";
  const ContractCheck result = check(contract, sample_report());
  EXPECT_EQ(result.status, LimitStatus::invalid);
  EXPECT_EQ(result.results[0].status, LimitStatus::violated) << "what could be judged is said";
  EXPECT_THAT(result.sentence, HasSubstr("(and 1 violated)"));
}

/// Keys that came later are not needed: no alignment control, no n_nonfinite, no mcnemar, no warnings.
TEST(Check, AnOlderReportStillReads) {
  Json report = sample_report();
  report["controls"].erase("alignment_independent");
  for (const char* key : {"tool", "environment", "numerics", "model", "data"}) report.erase(key);
  for (const char* clock : {"same_prefix", "free_running"}) report["conditions"][0][clock]["kl_on_off_nats"].erase("n_nonfinite");
  EXPECT_EQ(check(sample_contract(), report).status, LimitStatus::ok);
  report["conditions"][0]["a_later_key"] = 1;
  report["a_later_key"] = {{"a", 1}};
  EXPECT_EQ(check(sample_contract(), report).status, LimitStatus::ok);
}

TEST(Check, RefusesWhatIsNoRun) {
  const auto refused = [](const std::function<void(Json&)>& spoil, const char* says) {
    Json report = sample_report();
    spoil(report);
    try {
      check(sample_contract(), report);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("r.json: "), HasSubstr(says)));
    }
  };
  refused([](Json& r) { r["experiment"]["name"] = "drift"; }, "experiment.name: expected \"run\", found \"drift\"");
  refused([](Json& r) { r.erase("experiment"); }, "experiment.name");
  refused([](Json& r) { r = Json::array(); }, "experiment.name");
  refused([](Json& r) { r["conditions"][0].erase("strategy"); }, "conditions[0].strategy: expected a text, found null");
  refused([](Json& r) { r["conditions"].push_back(3); }, "conditions[1].dtype");
}

/// Any value of any type anywhere in the report: a result or an Error, and never a pass that was none before.
TEST(Check, HostileReportsAreReadOrRefused) {
  Json contract = sample_contract();
  contract["limits"][0]["at_most"] = 0;
  ASSERT_EQ(check(contract, sample_report()).status, LimitStatus::violated);
  const Json flat = sample_report().flatten();
  std::size_t n = 0;
  for (const auto& [pointer, old] : flat.items()) {
    for (const Json& value : {Json(nullptr), Json(true), Json(-1), Json(1e308), Json("x"), Json::array({1, "a"}), Json::object({{"expected", 1}}), Json(18446744073709551615u)}) {
      for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
        Json report = sample_report();
        report[at] = value;
        try {
          const Contract c = parse_contract(contract, "c.json");
          const ContractCheck result = check_contract(c, report, "r.json");
          const bool changed_the_number = at.to_string().find("kl_on_off_nats") != std::string::npos;
          EXPECT_TRUE(result.status != LimitStatus::ok || changed_the_number) << at << " = " << value;
          render_text(c, result);
          to_json(c, result);
          tightest_contract(c, result);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::unreadable);
        }
        ++n;
      }
    }
  }
  EXPECT_GT(n, 1000u);
}

// ---- the tightest limits -------------------------------------------------------------------------------------------

TEST(RoundOutward, KeepsTheValueAndTwoDigits) {
  EXPECT_EQ(round_outward(1.234e-6, true), 1.3e-6);
  EXPECT_EQ(round_outward(1.234e-6, false), 1.2e-6);
  EXPECT_EQ(round_outward(0.1, true), 0.1);
  EXPECT_EQ(round_outward(0.1, false), 0.1);
  EXPECT_EQ(round_outward(9.91e5, true), 1e6);
  EXPECT_EQ(round_outward(9.96, false), 9.9);
  EXPECT_EQ(round_outward(std::nextafter(1.0, 0.0), false), 0.99);
  EXPECT_EQ(round_outward(std::nextafter(1.0, 2.0), true), 1.1);
  EXPECT_EQ(round_outward(0.0, true), 0.0);
  EXPECT_EQ(round_outward(1.0, true), 1.0);
  EXPECT_EQ(round_outward(-0.123, true), -0.12);
  EXPECT_EQ(round_outward(-0.123, false), -0.13);
  EXPECT_EQ(round_outward(4.30e-30, true), 4.3e-30);
  EXPECT_EQ(round_outward(5e-324, true), 5e-324);
  EXPECT_EQ(round_outward(std::numeric_limits<double>::max(), true), std::numeric_limits<double>::max());
  double x = 7.1e-33;
  for (int i = 0; i < 20000; ++i, x *= 1.0091) {
    const double up = round_outward(x, true), down = round_outward(x, false);
    EXPECT_TRUE(down <= x && x <= up) << x;
    EXPECT_LE(up / x, 1.1000001) << x;
    EXPECT_GE(down / x, 0.9) << x;
    EXPECT_EQ(round_outward(up, true), up) << "two digits are enough for it";
    EXPECT_EQ(round_outward(down, false), down);
  }
}

TEST(Tightest, HoldsAndNothingTighterDoes) {
  Json report = sample_report(), contract = sample_contract();
  report["conditions"].push_back(sample_condition("float16", "invariant"));
  report["conditions"][1]["same_prefix"]["kl_on_off_nats"]["mean"] = 1.2345e-6;
  report["conditions"][1]["same_prefix"]["bit_equal_rate"] = 0.0987;
  contract["limits"].push_back({{"dtype", "float16"}, {"clock", "same_prefix"}, {"metric", "bit_equal_rate"}, {"at_least", 0.5}, {"reason", "b"}});
  contract["limits"].push_back({{"dtype", "float64"}, {"clock", "same_prefix"}, {"metric", "flip_rate"}, {"at_most", 0.5}, {"reason", "not measured"}});
  const Contract c = parse_contract(contract, "c.json");
  Json tightest = tightest_contract(c, check_contract(c, report, "r.json"));
  EXPECT_EQ(tightest["limits"][0]["at_most"], 1.3e-6) << "of the worst condition";
  EXPECT_EQ(tightest["limits"][1]["at_least"], 0.098);
  EXPECT_EQ(tightest["limits"][2], contract["limits"][2]) << "not measured: as it was";
  EXPECT_THAT(tightest["limits"][0]["reason"].get<std::string>(), testing::AllOf(HasSubstr("measured 1.2345e-06 (float16/invariant/greedy)"), HasSubstr("before: ≤ 1e-06, measured so")));
  tightest["limits"].erase(2);
  EXPECT_EQ(check(tightest, report).status, LimitStatus::ok);
  tightest["limits"][0]["at_most"] = 1.2e-6;
  EXPECT_EQ(check(tightest, report).status, LimitStatus::violated);
  report["complete"] = false;
  EXPECT_TRUE(tightest_contract(c, check_contract(c, report, "r.json")).is_null()) << "of an invalid report nothing is known";
}

// ---- for people and programs ---------------------------------------------------------------------------------------

TEST(Render, TheTableLinesUp) {
  Json report = sample_report(), contract = sample_contract();
  report["conditions"].push_back(sample_condition("float16", "order:prefill=blocked:32,decode=split-k:8"));
  contract["limits"].push_back({{"dtype", "float16"}, {"clock", "free_running"}, {"metric", "bit_equal_rate"}, {"at_least", 0.5}, {"reason", "because of this"}});
  const std::string out = text(contract, report);
  std::vector<std::string> rows;
  for (const std::string& line : split(out, '\n'))
    if (line.starts_with("  float16") || line.starts_with("  limit")) rows.push_back(line);
  ASSERT_EQ(rows.size(), 5u) << out;
  std::set<std::size_t> ends;  // of the last column before the status
  for (const std::string& row : rows)
    for (const std::string end : {"tightest", "  ok", "  VIOLATED"})
      if (const auto at = row.find(end); at != std::string::npos) ends.insert(display_width(row.substr(0, at)) + (end[0] == 't' ? end.size() : 0));
  EXPECT_EQ(ends.size(), 1u) << out;
  EXPECT_THAT(out, testing::AllOf(HasSubstr("contract: a contract\n"), HasSubstr("95 % upper end"), HasSubstr("1.5e-06"), HasSubstr("≤ 1e-06"), HasSubstr("VIOLATED"),
                                  HasSubstr("the limit's reason: because of this"), HasSubstr("The contract is violated: 2 of 4 limits; float16 free_running bit_equal_rate of float16/torch/greedy is 0.125, allowed ≥ 0.5.")));
}

/// 1.0000001e-06 against 1e-06 is shown with the digits that decide.
TEST(Render, ShowsWhyACloseNumberIsViolated) {
  Json report = sample_report();
  kl(report)["mean"] = 1.0000001e-6;
  EXPECT_THAT(text(sample_contract(), report), HasSubstr("  1.0000001e-06 "));
  EXPECT_THAT(text(sample_contract(), sample_report()), HasSubstr("The contract holds: 1 of 1 limits kept."));
}

TEST(Render, HostileTextsStayOnTheirLine) {
  Json report = sample_report(), contract = sample_contract();
  contract["title"] = "a\n  The contract holds\x1b[2J";
  contract["limits"][0]["reason"] = "b\r\nc";
  contract["limits"][0]["at_most"] = 0;
  contract["limits"][0]["backend"] = report["conditions"][0]["backend"] = "x\ny\x07";
  const std::string out = text(contract, report);
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_EQ(out.find('\x07'), std::string::npos);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5) << out;
}

TEST(CheckJson, HasEveryNumber) {
  const Contract c = parse_contract(sample_contract(), "c.json");
  const Json json = to_json(c, check_contract(c, sample_report(), "r.json"));
  EXPECT_EQ(json["status"], "ok");
  EXPECT_EQ(json["problems"], Json::array());
  ASSERT_EQ(json["results"].size(), 1u);
  const Json& r = json["results"][0];
  EXPECT_EQ(r["limit"], 0);
  EXPECT_EQ(r["name"], "float16 same_prefix kl_on_off_nats mean");
  EXPECT_EQ(r["condition"], "float16/torch/greedy");
  EXPECT_EQ(r["measured"], 1e-6);
  EXPECT_EQ(r["ci_high"], 1.5e-6);
  EXPECT_EQ(r["at_most"], 1e-6);
  EXPECT_EQ(r["tightest"], 1e-6);
  EXPECT_TRUE(r["why"].is_null());
}

}  // namespace
}  // namespace kvdiv
