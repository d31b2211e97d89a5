// The schemas against the structs of the experiments, and an older result read by today's commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "kvdiv/experiments/mitigate.h"
#include "kvdiv/experiments/noise.h"
#include "kvdiv/experiments/trace.h"
#include "kvdiv/stats/condition_summary.h"
#include "process.h"
#include "support/schema.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsSubsetOf;

const std::filesystem::path kOlder = root() / "tests" / "corpus" / "results" / "older";

template <Described S>
void expect_keys(const Json& definition, std::set<std::string> keys = {}) {
  for (const std::string& key : field_keys<S>()) keys.insert(key);
  std::set<std::string> listed;
  for (const auto& [key, value] : definition.at("properties").items()) listed.insert(key);
  EXPECT_EQ(listed, keys);
}

TEST(Schemas, HaveTheKeysOfTheExperimentsStructs) {
  const Json records = read_json_file(root() / "schemas" / "records.schema.json")["definitions"];
  expect_keys<TraceKvRecord>(records["trace_kv"], {"type"});
  expect_keys<TraceBirthRecord>(records["trace_birth"], {"type"});
  expect_keys<NoiseRecord>(records["noise"], {"type"});
  expect_keys<MitigateRecord>(records["mitigate"], {"type"});
  const Json report = read_json_file(root() / "schemas" / "report.schema.json")["definitions"];
  expect_keys<Stat>(report["stat"]);
  expect_keys<TestResult>(report["test"]);
  expect_keys<StepGroup>(report["steps"]);
  expect_keys<ConditionSummary>(report["run_condition"], {"timing", "max_abs_activation"});
  expect_keys<McNemarResult>(report["mcnemar"], {"p_benjamini_hochberg"});
}

/// Keys that came later are missed nowhere.
TEST(OlderResult, IsRead) {
  const TempDir dir;
  const auto again = kvdiv_run({"report", kOlder.string()});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("toy-llama"), HasSubstr("controls: all 6 hold"), HasSubstr("verdict: rounding")));
  EXPECT_EQ(Json::parse(kvdiv_run({"report", kOlder.string(), "--json"}).out), read_json_file(kOlder / "report.json"));

  const auto boundary = kvdiv_run({"boundary", kOlder.string(), "--output", (dir.path() / "boundary").string()});
  EXPECT_EQ(boundary.code, 0) << boundary.err;
  EXPECT_THAT(boundary.out, HasSubstr("verdict: no_flips"));

  const std::string contract = (dir.path() / "contract.json").string();
  std::ofstream(contract) << R"({"schema": "kvdiv/contract/1", "title": "small", "limits": [{"dtype": "float32", "clock": "same_prefix",
    "metric": "kl_on_off_nats", "statistic": "max", "at_most": 1e-9, "reason": "rounding of FP32"}]})";
  const auto check = kvdiv_run({"check", kOlder.string(), "--contract", contract, "--against", kOlder.string()});
  EXPECT_EQ(check.code, 0) << check.out << check.err;
}

}  // namespace
}  // namespace kvdiv::test
