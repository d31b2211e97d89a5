// `kvdiv check` on real runs of a toy: each exit code, and what is printed and written with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvdiv/report/contract.h"
#include "kvdiv/report/result_directory.h"
#include "process.h"
#include "support/run_report.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// Two dtypes, two backends, 4 prompts × 8 steps: decoded once for all tests.
class CheckCli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    const auto run = kvdiv_run({"run", "--model", "toy-llama", "--dtype", "float16,float32", "--backend", "order:prefill=sequential,decode=pairwise", "--backend", "invariant", "--limit", "4", "--max-new-tokens", "8",
                                "--seeds", "1", "--ignore-eos", "--threads", "1", "--quiet", "--output", (dir_->path() / "run").string()});
    ASSERT_EQ(run.code, 0) << run.err;
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static std::string path(const std::string& name) { return (dir_->path() / name).string(); }
  static Json report() { return read_report(path("run")); }
  static std::string write(const std::string& name, const Json& json) {
    write_text_file_atomically(path(name), json.dump(1));
    return path(name);
  }
  static Json contract(double at_most) {
    Json c = sample_contract();
    c["minimum"] = {{"n_pairs", 4}, {"n_steps", 32}};
    c["limits"][0]["at_most"] = at_most;
    return c;
  }
  static ProcessResult check(const std::vector<std::string>& more, const std::string& source = path("run")) {
    std::vector<std::string> arguments{"check", source};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kvdiv_run(arguments);
  }

  static inline std::unique_ptr<TempDir> dir_;
};

TEST_F(CheckCli, HoldsViolatedInvalid) {
  const auto holds = check({"--contract", write("c.json", contract(1e-3))});
  EXPECT_EQ(holds.code, 0) << holds.err;
  EXPECT_EQ(holds.err, "");
  EXPECT_THAT(holds.out, AllOf(HasSubstr("float16/order:prefill=sequential,decode=pairwise/greedy"), HasSubstr("float16/invariant/greedy"), HasSubstr("The contract holds: 2 of 2 limits")));
  const auto file = check({"--contract", path("c.json")}, (dir_->path() / "run" / "report.json").string());
  EXPECT_EQ(file.code, 0);
  EXPECT_EQ(file.out, holds.out) << "a directory is its report.json";

  const auto violated = check({"--contract", write("c.json", contract(0))});
  EXPECT_EQ(violated.code, 1) << violated.err;
  EXPECT_THAT(violated.out, AllOf(HasSubstr("VIOLATED"), HasSubstr("The contract is violated: 1 of 2 limits"), HasSubstr("measured so")));

  Json missing = contract(1e-3);
  missing["limits"][0]["dtype"] = "float64";
  const auto invalid = check({"--contract", write("c.json", missing)});
  EXPECT_EQ(invalid.code, 4) << invalid.err;
  EXPECT_THAT(invalid.out, AllOf(HasSubstr("The check is invalid"), HasSubstr("no condition of the report matches; the report has float16/order:prefill=sequential,decode=pairwise/greedy")));

  Json more = contract(1e-3);
  more["minimum"]["n_pairs"] = 5;
  EXPECT_EQ(check({"--contract", write("c.json", more)}).code, 4);
  write("c.json", contract(0));
  Json failed = report();
  failed["controls"]["order_independent"] = false;
  EXPECT_EQ(check({"--contract", path("c.json")}, write("failed.json", failed)).code, 4) << "not a violation: nothing was measured";
  Json torn = report();
  torn["complete"] = false;
  EXPECT_EQ(check({"--contract", path("c.json")}, write("torn.json", torn)).code, 4);
}

TEST_F(CheckCli, ExactlyTheMeasuredNumberHolds) {
  const double measured = report()["conditions"][0]["same_prefix"]["kl_on_off_nats"]["mean"];
  ASSERT_GT(measured, 0.0);
  EXPECT_EQ(check({"--contract", write("c.json", contract(measured))}).code, 0);
  EXPECT_EQ(check({"--contract", write("c.json", contract(std::nextafter(measured, 0.0)))}).code, 1);
}

TEST_F(CheckCli, UsageAndUnreadable) {
  const std::string good = write("c.json", contract(1e-3));
  const auto refused = [](const ProcessResult& result, int code, const std::string& says) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(testing::StartsWith("kvdiv: "), HasSubstr(says)));
    EXPECT_EQ(result.out, "");
    EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 2);
  };
  refused(kvdiv_run({"check", "--contract", good}), 2, "result directory");
  refused(kvdiv_run({"check", path("run"), path("run"), "--contract", good}), 2, "result directory");
  refused(check({}), 2, "--contract FILE is missing");
  refused(check({"--contract", good, "--limit", "3"}), 2, "does not use this flag");
  refused(check({"--contract", good, "--junit", good}), 2, "is only read here");
  refused(check({"--contract", good, "--junit", (dir_->path() / "run" / "report.json").string()}), 2, "is only read here");
  refused(check({"--contract", "/nonexistent.json"}), 3, "/nonexistent.json");
  refused(check({"--contract", good}, "/nonexistent"), 3, "/nonexistent");
  refused(check({"--contract", good, "--against", "/nonexistent"}), 3, "/nonexistent");
  refused(check({"--contract", good, "--junit", "/nonexistent/j.xml"}), 3, "/nonexistent/j.xml");
  refused(check({"--contract", good}, good), 3, "not a report of kvdiv");
  refused(check({"--contract", (dir_->path() / "run" / "report.json").string()}), 3, "not a contract");
  Json typo = contract(1);
  typo["limits"][0]["metric"] = "kl_on_of_nats";
  refused(check({"--contract", write("typo.json", typo)}), 3, "typo.json: key limits[0].metric");
  write_text_file_atomically(path("text.json"), "{\"schema\": ");
  refused(check({"--contract", path("text.json")}), 3, "text.json: not JSON");
  Json drift = report();
  drift["experiment"]["name"] = "drift";
  refused(check({"--contract", good}, write("drift.json", drift)), 3, "kvdiv check reads the result of kvdiv run");
}

TEST_F(CheckCli, JsonHoldsTheTightestContract) {
  const auto result = check({"--contract", write("c.json", contract(0)), "--json"});
  EXPECT_EQ(result.code, 1);
  const Json json = Json::parse(result.out);
  for (const char* key : {"schema", "report", "contract", "title", "status", "sentence", "problems", "results", "tightest", "against", "exit_code"}) EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["schema"], "kvdiv/check/1");
  EXPECT_EQ(json["status"], "violated");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_TRUE(json["against"].is_null());
  EXPECT_EQ(json["results"][0]["measured"], report()["conditions"][0]["same_prefix"]["kl_on_off_nats"]["mean"]);
  const auto again = check({"--contract", write("tightest.json", json["tightest"])});
  EXPECT_EQ(again.code, 0) << "what is printed can be used: " << again.out;
}

TEST_F(CheckCli, JUnitIsWrittenWhateverTheVerdict) {
  const std::string junit = path("j.xml");
  for (const auto& [bound, code, element] : {std::tuple{1e-3, 0, "<testcase"}, std::tuple{0.0, 1, "<failure message=\"measured "}}) {
    EXPECT_EQ(check({"--contract", write("c.json", contract(bound)), "--junit", junit}).code, code);
    EXPECT_THAT(read_text_file(junit), AllOf(testing::StartsWith("<?xml"), HasSubstr(element), testing::EndsWith("</testsuites>\n")));
  }
  Json missing = contract(1);
  missing["limits"][0]["dtype"] = "float64";
  EXPECT_EQ(check({"--contract", write("c.json", missing), "--junit", junit, "--json"}).code, 4);
  EXPECT_THAT(read_text_file(junit), HasSubstr("<error message=\"no condition"));
  for (const auto& entry : fs::directory_iterator(dir_->path())) EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << "no debris";
}

TEST_F(CheckCli, AgainstAnOlderReport) {
  const std::string good = write("c.json", contract(1e-3));
  const auto same = check({"--contract", good, "--against", path("run")});
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_THAT(same.out, AllOf(HasSubstr("The contract holds"), HasSubstr("none of 16 numbers regressed"), HasSubstr("unchanged")));
  Json older = report();
  Json& steps = older["conditions"][0]["same_prefix"];
  for (const char* key : {"mean", "ci_low", "ci_high"}) steps["kl_on_off_nats"][key] = steps["kl_on_off_nats"][key].get<double>() / 100;
  older["environment"]["cpu"] = "another";
  older["numerics"]["invariant_kernels"] = "another too";
  const auto worse = check({"--contract", good, "--against", write("older.json", older), "--junit", path("j.xml")});
  EXPECT_EQ(worse.code, 1) << worse.out;
  EXPECT_THAT(worse.out, AllOf(HasSubstr("REGRESSED"), HasSubstr("differs: environment.cpu: "), HasSubstr("was \"another\""), HasSubstr("differs: numerics.invariant_kernels: "),
                               HasSubstr("1 of 16 numbers regressed; kl_on_off_nats mean of float16/order:prefill=sequential,decode=pairwise/greedy")));
  EXPECT_THAT(read_text_file(path("j.xml")), AllOf(HasSubstr("<testsuite name=\"kvdiv check --against\" tests=\"16\" failures=\"1\" errors=\"0\""), HasSubstr("differs: environment.cpu")));
  const Json json = Json::parse(check({"--contract", good, "--against", path("older.json"), "--json"}).out);
  EXPECT_EQ(json["status"], "violated") << "of both together";
  for (const Json& r : json["results"]) EXPECT_EQ(r["status"], "ok") << "of the contract";
  EXPECT_THAT(json["sentence"].get<std::string>(), AllOf(HasSubstr("The contract holds"), HasSubstr("1 of 16 numbers regressed")));
  EXPECT_EQ(json["against"]["status"], "violated");
  EXPECT_EQ(json["exit_code"], 1);
  older["data"]["indices"][0] = 1;
  const auto others = check({"--contract", good, "--against", write("older.json", older)});
  EXPECT_EQ(others.code, 4);
  EXPECT_THAT(others.out, HasSubstr("data.indices"));
}

/// The shipped contracts hold for a run of theirs that is as small as they allow, on whatever machine this is.
TEST_F(CheckCli, ShippedContractsHoldForAToy) {
  const auto run = kvdiv_run({"run", "--model", "toy-llama", "--dtype", "float16,bfloat16,float32,float64", "--backend", "torch", "--backend", "invariant", "--limit", "8", "--max-new-tokens", "16", "--seeds", "1",
                              "--ignore-eos", "--threads", "1", "--quiet", "--output", path("all")});
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* name : {"float16", "bfloat16", "float32", "float64", "invariant"}) {
    const auto result = check({"--contract", std::string(KVDIV_TEST_ROOT) + "/configs/contracts/" + name + ".json"}, path("all"));
    EXPECT_EQ(result.code, 0) << name << "\n" << result.out << result.err;
  }
}

}  // namespace
}  // namespace kvdiv::test
