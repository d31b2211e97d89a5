// Contracts as they are read: what they may say, and what is refused with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/contract.h"
#include "support/run_report.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
using test::sample_contract;
using testing::HasSubstr;

const fs::path kRoot = KVDIV_TEST_ROOT;

std::string refusal(const Json& contract) {
  try {
    parse_contract(contract, "c.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    return error.what();
  }
  return "accepted";
}

Json limit_of(const LimitMetric& metric) {
  Json limit = sample_contract()["limits"][0];
  limit["metric"] = metric.name;
  limit["at_most"] = 0.5;
  if (!metric.is_stat) limit.erase("statistic");
  return limit;
}

TEST(Contract, SaysWhatTheFileSays) {
  Json json = sample_contract();
  Json& limit = json["limits"].emplace_back(json["limits"][0]);
  limit["backend"] = "order:prefill=blocked:32,decode=split-k:8";
  limit["strategy"] = "top-k";
  limit["clock"] = "free_running";
  limit["metric"] = "bit_equal_rate";
  limit.erase("statistic");
  limit.erase("at_most");
  limit["at_least"] = 0.25;
  const Contract contract = parse_contract(json, "c.json");
  EXPECT_EQ(contract.title, "a contract");
  EXPECT_EQ(contract.min_pairs, 4);
  EXPECT_EQ(contract.min_steps, 64);
  EXPECT_EQ(contract.controls, (std::vector<std::string>{"on_on_bit_equal", "n_tokens_computed_on"}));
  ASSERT_EQ(contract.limits.size(), 2u);
  EXPECT_EQ(contract.limits[0].dtype, DType::float16);
  EXPECT_EQ(contract.limits[0].clock, LimitClock::same_prefix);
  EXPECT_EQ(contract.limits[0].backend, std::nullopt);
  EXPECT_EQ(contract.limits[0].strategy, std::nullopt);
  EXPECT_EQ(contract.limits[0].statistic, "mean");
  EXPECT_TRUE(contract.limits[0].is_at_most);
  EXPECT_EQ(contract.limits[0].bound, 1e-6);
  EXPECT_EQ(contract.limits[0].reason, "measured so");
  EXPECT_EQ(contract.limits[1].strategy, Strategy::top_k);
  EXPECT_EQ(contract.limits[1].clock, LimitClock::free_running);
  EXPECT_FALSE(contract.limits[1].is_at_most);
  EXPECT_EQ(contract.limits[1].bound, 0.25);
  EXPECT_EQ(limit_name(contract.limits[0]), "float16 same_prefix kl_on_off_nats mean");
  EXPECT_EQ(limit_name(contract.limits[1]),
            "float16 free_running bit_equal_rate backend=order:prefill=blocked:32,decode=split-k:8 strategy=top-k");
  EXPECT_EQ(bound_text(contract.limits[0]), "≤ 1e-06");
  EXPECT_EQ(bound_text(contract.limits[1]), "≥ 0.25");
  EXPECT_EQ(to_json(parse_contract(to_json(contract), "again")), to_json(contract));
  EXPECT_EQ(to_json(contract)["limits"][1]["at_least"], 0.25);
  EXPECT_EQ(to_json(contract)["limits"][0], json["limits"][0]);
}

TEST(Contract, MinimumAndControlsMayBeLeftOut) {
  Json json = sample_contract();
  json.erase("minimum");
  json.erase("controls");
  const Contract contract = parse_contract(json, "c.json");
  EXPECT_EQ(contract.min_pairs, 0);
  EXPECT_EQ(contract.min_steps, 0);
  EXPECT_TRUE(contract.controls.empty());
  EXPECT_EQ(to_json(contract), json);
}

struct Wrong {
  const char* name;
  std::function<void(Json&)> spoil;
  std::vector<std::string> says;

  friend std::ostream& operator<<(std::ostream& out, const Wrong& w) { return out << w.name; }
};

class Refusals : public testing::TestWithParam<Wrong> {};

TEST_P(Refusals, NameFileKeyExpectedAndFound) {
  ASSERT_EQ(refusal(sample_contract()), "accepted");
  Json json = sample_contract();
  GetParam().spoil(json);
  const std::string message = refusal(json);
  EXPECT_THAT(message, testing::StartsWith("c.json: "));
  for (const std::string& part : GetParam().says) EXPECT_THAT(message, HasSubstr(part));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

Json& limit(Json& j) { return j["limits"][0]; }

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    testing::Values(
        Wrong{"no object", [](Json& j) { j = Json::array({1}); }, {"key schema", "no object"}},
        Wrong{"no schema", [](Json& j) { j.erase("schema"); }, {"key schema: expected \"kvdiv/contract/1\"", "no such key"}},
        Wrong{"a report", [](Json& j) { j = test::sample_report(); }, {"found \"kvdiv/report/1\"", "not a contract"}},
        Wrong{"a later schema", [](Json& j) { j["schema"] = "kvdiv/contract/2"; }, {"kvdiv/contract/2"}},
        Wrong{"an unknown key", [](Json& j) { j["limit"] = 1; }, {"unknown key 'limit', did you mean 'limits'?", "expected schema, title"}},
        Wrong{"no title", [](Json& j) { j.erase("title"); }, {"key title: is missing"}},
        Wrong{"a blank title", [](Json& j) { j["title"] = " \n"; }, {"key title: expected", "not empty"}},
        Wrong{"a title of another type", [](Json& j) { j["title"] = 3; }, {"key title", "found 3"}},
        Wrong{"minimum is no object", [](Json& j) { j["minimum"] = 3; }, {"key minimum: expected an object, found 3"}},
        Wrong{"an unknown minimum", [](Json& j) { j["minimum"]["n_pair"] = 3; }, {"key minimum: unknown key 'n_pair'", "'n_pairs'"}},
        Wrong{"a minimum of 0", [](Json& j) { j["minimum"]["n_pairs"] = 0; }, {"key minimum.n_pairs: expected an integer of at least 1, found 0"}},
        Wrong{"a minimum that is no integer", [](Json& j) { j["minimum"]["n_steps"] = 1.5; }, {"minimum.n_steps", "found 1.5"}},
        Wrong{"a minimum beyond 2^63", [](Json& j) { j["minimum"]["n_steps"] = 18446744073709551615u; }, {"minimum.n_steps"}},
        Wrong{"controls are no list", [](Json& j) { j["controls"] = "all"; }, {"key controls: expected a list"}},
        Wrong{"an unknown control", [](Json& j) { j["controls"][1] = "on_on_bit_equals"; }, {"key controls[1]", "did you mean 'on_on_bit_equal'"}},
        Wrong{"a control that is no text", [](Json& j) { j["controls"][0] = 1; }, {"key controls[0]", "found 1"}},
        Wrong{"no limits", [](Json& j) { j.erase("limits"); }, {"key limits: is missing"}},
        Wrong{"limits are no list", [](Json& j) { j["limits"] = Json::object(); }, {"key limits: expected a list"}},
        Wrong{"an empty list of limits", [](Json& j) { j["limits"] = Json::array(); }, {"key limits: expected a list of 1 to 1000"}},
        Wrong{"too many limits", [](Json& j) { j["limits"] = Json(Json::array_t(kMaxLimits + 1, limit(j))); }, {"key limits: expected a list of 1 to 1000"}},
        Wrong{"a limit is no object", [](Json& j) { limit(j) = 3; }, {"key limits[0]: expected an object, found 3"}},
        Wrong{"an unknown key of a limit", [](Json& j) { limit(j)["at_mots"] = 1; }, {"key limits[0]: unknown key 'at_mots', did you mean 'at_most'?"}},
        Wrong{"no dtype", [](Json& j) { limit(j).erase("dtype"); }, {"key limits[0].dtype: is missing", "bfloat16"}},
        Wrong{"an unknown dtype", [](Json& j) { limit(j)["dtype"] = "flaot16"; }, {"limits[0].dtype", "found \"flaot16\"", "did you mean 'float16'?"}},
        Wrong{"a dtype that is no text", [](Json& j) { limit(j)["dtype"] = 16; }, {"limits[0].dtype", "found 16"}},
        Wrong{"no clock", [](Json& j) { limit(j).erase("clock"); }, {"limits[0].clock: is missing", "same_prefix, free_running"}},
        Wrong{"an unknown clock", [](Json& j) { limit(j)["clock"] = "same-prefix"; }, {"limits[0].clock", "did you mean 'same_prefix'?"}},
        Wrong{"an unknown strategy", [](Json& j) { limit(j)["strategy"] = "top_k"; }, {"limits[0].strategy", "did you mean 'top-k'?"}},
        Wrong{"a null strategy", [](Json& j) { limit(j)["strategy"] = nullptr; }, {"limits[0].strategy", "found null"}},
        Wrong{"an empty backend", [](Json& j) { limit(j)["backend"] = ""; }, {"limits[0].backend"}},
        Wrong{"no metric", [](Json& j) { limit(j).erase("metric"); }, {"limits[0].metric: is missing"}},
        Wrong{"an unknown metric", [](Json& j) { limit(j)["metric"] = "kl_on_of_nats"; }, {"limits[0].metric", "did you mean 'kl_on_off_nats'?"}},
        Wrong{"no statistic", [](Json& j) { limit(j).erase("statistic"); }, {"limits[0].statistic: is missing", "p99"}},
        Wrong{"an unknown statistic", [](Json& j) { limit(j)["statistic"] = "average"; }, {"limits[0].statistic", "found \"average\""}},
        Wrong{"the statistic of a rate",
              [](Json& j) {
                limit(j)["metric"] = "flip_rate";
              },
              {"limits[0].statistic: flip_rate is one number", "remove the key"}},
        Wrong{"no bound", [](Json& j) { limit(j).erase("at_most"); }, {"key limits[0]: expected either at_most or at_least, found none"}},
        Wrong{"two bounds", [](Json& j) { limit(j)["at_least"] = 0; }, {"key limits[0]: expected either", "both"}},
        Wrong{"a null bound", [](Json& j) { limit(j)["at_most"] = nullptr; }, {"limits[0].at_most: expected a number, found null"}},
        Wrong{"a bound that is a text", [](Json& j) { limit(j)["at_most"] = "1e-6"; }, {"limits[0].at_most: expected a number"}},
        Wrong{"a bound that nothing keeps", [](Json& j) { limit(j)["at_most"] = -1e-9; }, {"limits[0].at_most: expected a number of at least 0, found -1e-09"}},
        Wrong{"a rate in percent",
              [](Json& j) {
                limit(j)["metric"] = "flip_rate";
                limit(j).erase("statistic");
                limit(j)["at_most"] = 5;
              },
              {"limits[0].at_most: expected a number from 0 to 1, found 5"}},
        Wrong{"no reason", [](Json& j) { limit(j).erase("reason"); }, {"limits[0].reason: is missing", "why this number"}},
        Wrong{"an empty reason", [](Json& j) { limit(j)["reason"] = ""; }, {"limits[0].reason", "not empty"}},
        Wrong{"a hostile key", [](Json& j) { j[std::string("\x1b[2J\n", 5)] = 1; }, {"unknown key '\\u001b[2J\\n'"}}));

TEST(Contract, EveryMetricCanBeLimited) {
  for (const LimitMetric& metric : limit_metrics()) {
    Json json = sample_contract();
    json["limits"][0] = limit_of(metric);
    EXPECT_EQ(refusal(json), "accepted") << metric.name;
    json["limits"][0]["at_most"] = std::nextafter(metric.lowest, -10.0);
    EXPECT_THAT(refusal(json), HasSubstr("at_most")) << metric.name;
    json["limits"][0]["at_most"] = metric.highest;
    EXPECT_EQ(refusal(json), "accepted") << metric.name;
    json["limits"][0].erase("clock");
    EXPECT_EQ(refusal(json) == "accepted", !metric.is_per_step) << metric.name << ": pairs part at the same step under both clocks";
  }
  for (const std::string_view statistic : limit_statistics()) {
    Json json = sample_contract();
    json["limits"][0]["statistic"] = statistic;
    EXPECT_EQ(refusal(json), "accepted") << statistic;
  }
  for (const std::string_view control : run_controls()) {
    Json json = sample_contract();
    json["controls"] = Json::array({control});
    EXPECT_EQ(refusal(json), "accepted") << control;
  }
}

/// Whatever the bytes are, the answer is a contract or an Error: also for every file that was cut off, or has one byte changed.
TEST(Contract, AnyBytesAreReadOrRefused) {
  const std::string text = sample_contract().dump();
  ASSERT_EQ(to_json(parse_contract_text(text, "c.json")), sample_contract());
  for (std::size_t n = 0; n < text.size(); ++n) EXPECT_THROW(parse_contract_text(std::string_view(text).substr(0, n), "c.json"), Error) << n;
  std::size_t n_refused = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const char byte : {'\0', '"', '{', '}', '9', '-', '\xff', ' '}) {
      std::string changed = text;
      changed[i] = byte;
      try {
        parse_contract_text(changed, "c.json");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unreadable);
        ++n_refused;
      }
    }
  EXPECT_GT(n_refused, text.size() * 4);
  for (const std::string& bad : {std::string(100000, '['), std::string("{\"schema\":1e999}"), std::string("{\"title\":\"a\",\"title\":\"b\"}"), std::string("\xEF\xBB\xBF") + "nonsense"})
    EXPECT_THROW(parse_contract_text(bad, "c.json"), Error);
}

// ---- what is shipped -----------------------------------------------------------------------------------------------

TEST(ShippedContracts, AreContracts) {
  for (const char* name : {"float16", "bfloat16", "float32", "float64", "invariant"}) {
    const fs::path file = kRoot / "configs" / "contracts" / (std::string(name) + ".json");
    const Contract c = parse_contract(read_json_file(file), file.string());
    EXPECT_GE(c.min_pairs, 4) << name;
    EXPECT_GE(c.min_steps, 64) << name;
    // All controls that do not depend on the model, and none that an older report may lack without saying less.
    for (const char* control : {"on_on_bit_equal", "off_off_bit_equal", "prefill_bit_equal", "order_independent", "n_tokens_computed_on", "n_tokens_computed_off"})
      EXPECT_THAT(c.controls, testing::Contains(control)) << name;
    std::set<std::string> names;
    for (const Limit& l : c.limits) {
      EXPECT_TRUE(names.insert(limit_name(l)).second) << name << " says twice: " << limit_name(l);
      EXPECT_GT(l.reason.size(), 40u) << name << ": " << l.reason;
      if (std::string(name) != "invariant") {
        EXPECT_EQ(name_of(l.dtype), name);
        EXPECT_GT(l.bound, 0.0);
        EXPECT_THAT(l.reason, HasSubstr("measured"));
      } else {
        EXPECT_EQ(l.backend, "invariant");
        EXPECT_EQ(l.bound, l.metric->name == "bit_equal_rate" ? 1.0 : 0.0);
      }
    }
    const auto has = [&](std::string_view metric) {
      return std::any_of(c.limits.begin(), c.limits.end(), [&](const Limit& l) { return l.metric->name == metric && l.clock == LimitClock::same_prefix; });
    };
    EXPECT_TRUE(has("kl_on_off_nats") && has("max_abs_dlogit") && has("flip_rate")) << name;
  }
}

/// The schema for editors says what the parser does: the same keys, the same names.
TEST(Schema, HasTheParsersNames) {
  const Json schema = read_json_file(kRoot / "schemas" / "contract.schema.json");
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["properties"]["schema"]["const"], kContractSchema);
  EXPECT_EQ(schema["additionalProperties"], false);
  const Json& limit = schema["$defs"]["limit"];
  EXPECT_EQ(limit["additionalProperties"], false);
  std::vector<std::string> metrics, stats, statistics, controls, dtypes, strategies, clocks;
  for (const LimitMetric& m : limit_metrics()) {
    metrics.emplace_back(m.name);
    if (m.is_stat) stats.emplace_back(m.name);
  }
  for (const auto name : limit_statistics()) statistics.emplace_back(name);
  for (const auto name : run_controls()) controls.emplace_back(name);
  for (const auto& [value, name] : EnumNames<DType>::values) dtypes.emplace_back(name);
  for (const auto& [value, name] : EnumNames<Strategy>::values) strategies.emplace_back(name);
  for (const auto& [value, name] : EnumNames<LimitClock>::values) clocks.emplace_back(name);
  EXPECT_EQ(limit["properties"]["metric"]["enum"], Json(metrics));
  EXPECT_EQ(schema["$defs"]["stat_metric"]["enum"], Json(stats));
  EXPECT_EQ(limit["properties"]["statistic"]["enum"], Json(statistics));
  EXPECT_EQ(limit["properties"]["dtype"]["enum"], Json(dtypes));
  EXPECT_EQ(limit["properties"]["strategy"]["enum"], Json(strategies));
  EXPECT_EQ(limit["properties"]["clock"]["enum"], Json(clocks));
  EXPECT_EQ(schema["properties"]["controls"]["items"]["enum"], Json(controls));
  EXPECT_EQ(schema["properties"]["limits"]["maxItems"], kMaxLimits);
  Json full = sample_contract();
  full["limits"][0].update({{"backend", "torch"}, {"strategy", "greedy"}, {"at_least", 0}});
  for (const auto& [key, value] : full.items()) EXPECT_TRUE(schema["properties"].contains(key)) << key;
  EXPECT_EQ(schema["properties"].size(), full.size());
  for (const auto& [key, value] : full["limits"][0].items()) EXPECT_TRUE(limit["properties"].contains(key)) << key;
  EXPECT_EQ(limit["properties"].size(), full["limits"][0].size());
}

}  // namespace
}  // namespace kvdiv
