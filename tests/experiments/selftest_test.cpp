// `selftest` names everything on a healthy build, and can fail: where a planted fault does not show, it says so.
#include "kvdiv/experiments/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/common_signatures.h"
#include "kvdiv/decode/faults.h"
#include "support/experiment.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

struct Subject {
  explicit Subject(const std::string& name, const std::filesystem::path& model_dir) : dir(model_dir), config(config_of(dir)) {
    for (const std::int64_t a : {5, 11}) {
      std::vector<TokenId> ids{1};
      for (std::int64_t i = 1; i < 24; ++i) ids.push_back((a * i * i + i) % config.sizes.vocab);
      prompts.push_back({fmt::format("p{}", a), "", a, ids, std::nullopt});
    }
    model.emplace(SelftestModel{name, config, prompts, [this](DType d, const std::string&, const std::string& attention) { return load(dir, d, attention); }});
  }
  std::filesystem::path dir;
  ModelConfig config;
  std::vector<PromptItem> prompts;
  std::optional<SelftestModel> model;
};

SelftestParams quick() {
  SelftestParams p;
  p.dtype = {DType::float16};
  p.backend = {"torch"};
  p.prompt_tokens = 20;
  p.max_steps = 6;
  return p;
}

ExperimentResult selftest(const SelftestModel& model, const SelftestParams& params) {
  Fixture f = toy("toy-llama", 1);
  Context context = f.context();
  return run_selftest(context, std::span(&model, 1), params);
}

ExperimentResult selftest_of(const std::string& name) {
  const Subject s(name, golden_dir(name));
  return selftest(*s.model, quick());
}

const ExperimentResult& mistral() {
  static const ExperimentResult result = selftest_of("tiny-mistral");
  return result;
}

TEST(Selftest, NamesEveryRow) {
  const ExperimentResult gemma2 = selftest_of("tiny-gemma2");
  for (const auto& [name, result] : {std::pair("tiny-mistral", &mistral()), std::pair("tiny-gemma2", &gemma2)}) {
    const ExperimentResult& r = *result;
    EXPECT_EQ(r.verdict["kind"], "holds") << r.verdict;
    EXPECT_TRUE(r.complete);
    const Json& matrix = r.extra["matrix"];
    EXPECT_EQ(matrix.size() + r.extra["not_applicable"].size(), 1 + EnumNames<Fault>::values.size()) << "nothing is left out";
    EXPECT_EQ(matrix[0]["planted"], "healthy");
    for (const Json& row : matrix) {
      EXPECT_EQ(row["named"], row["planted"]) << row;
      EXPECT_EQ(row["ok"], true);
      EXPECT_EQ(row["model"], name);
      for (const char* key : {"same_prefix_kl_nats", "free_running_kl_nats", "flips", "first_layer_drift"}) {
        EXPECT_TRUE(row["signature"][key].is_number()) << key << row;
        EXPECT_TRUE(row["signature"]["float32"][key].is_number()) << key << row;
      }
    }
    for (const Json& row : r.extra["not_applicable"]) EXPECT_FALSE(row["reason"].get<std::string>().empty());
    EXPECT_TRUE(r.extra["confusion"].empty());
  }
}

/// A bug stays in float32, rounding does not: the signatures say which is which.
TEST(Selftest, SignaturesTellBugsFromRounding) {
  for (const Json& row : mistral().extra["matrix"]) {
    const Json &here = row["signature"], &wide = row["signature"]["float32"];
    const double kl = here["same_prefix_kl_nats"].get<double>(), kl32 = wide["same_prefix_kl_nats"].get<double>();
    if (row["planted"] == "healthy" || row["planted"] == "norm_order_changed") {
      EXPECT_LT(kl, 1e-4) << row;
      EXPECT_LT(kl32, 1e-10) << row;
      EXPECT_EQ(wide["flips"], 0.0);
    } else if (row["planted"] == "newest_token_only" || row["planted"] == "last_position_wrong") {
      EXPECT_GT(kl, 0.1) << row;
      EXPECT_NEAR(kl32 / kl, 1.0, 0.1) << row;
    }
    EXPECT_GE(here["free_running_kl_nats"].get<double>(), 0.0);
  }
}

/// The model is said to cap its scores, and does not: dropping the cap is planted, and cannot be found.
TEST(Selftest, FailsWhereAFaultDoesNotShow) {
  Subject s("uncapped", golden_dir("tiny-llama"));
  s.config.traits.attention_cap = 50.0;
  const ExperimentResult r = selftest(*s.model, quick());
  EXPECT_EQ(r.verdict["kind"], "violated");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), testing::AllOf(HasSubstr("uncapped: cap_dropped was named healthy"), HasSubstr("1 of")));
  ASSERT_EQ(r.extra["confusion"].size(), 1u);
  EXPECT_EQ(r.extra["confusion"][0], (Json{{"planted", "cap_dropped"}, {"named", "healthy"}, {"n", 1}}));
}

TEST(Selftest, GivesTheSameReportTwice) {
  EXPECT_EQ(selftest_of("tiny-mistral").extra.dump(), mistral().extra.dump());
}

TEST(Selftest, AnInterruptEndsIt) {
  const Subject s("tiny-llama", golden_dir("tiny-llama"));
  Fixture f = toy("toy-llama", 1);
  f.progress.interrupt_after = 3;
  Context context = f.context();
  const ExperimentResult r = run_selftest(context, std::span(&*s.model, 1), quick());
  set_interrupted(false);
  EXPECT_FALSE(r.complete);
  EXPECT_LE(r.extra["matrix"].size(), 4u);
}

TEST(SelftestParams, AreValidated) {
  EXPECT_FALSE(is_refused<SelftestParams>([](SelftestParams&) {}));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.dtype = {DType::float64}; }));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.dtype.clear(); }));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.backend.clear(); }));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.backend = {"abacus"}; }));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.prompt_tokens = 7; }));
  EXPECT_TRUE(is_refused<SelftestParams>([](SelftestParams& p) { p.max_steps = 3; }));
}

TEST(SignatureDistance, IsInOrdersOfMagnitude) {
  const PublishedSignature published{{std::vector{10.0, 12.0}, std::vector{1.0}}, {std::vector{1e-8}, std::vector{0.0}}};
  const SignatureNumbers in{1e-3, 11.0, 0.5, 1.0, {}, {}}, low{1.0, 0.1, 0.0, 0.0, {}, {}}, zero{};
  const SignatureNumbers wide{1e-8, 1.0, 0.0, 0.0, {}, {}};
  const SignatureDistance fits = signature_distance("x", in, wide, published);
  EXPECT_EQ(fits.kl_16, 0.0) << "the free-running one lies in the interval";
  EXPECT_EQ(fits.both, 0.0);
  const SignatureDistance off = signature_distance("x", low, in, published);
  EXPECT_NEAR(*off.kl_16, 1.0, 1e-12) << "1 against 10";
  EXPECT_NEAR(*off.diverged_16, std::log10(1.01 / 0.01), 1e-12) << "none against all, from one in a hundred on";
  EXPECT_NEAR(*off.kl_32, 5.0, 1e-12) << "1e-3 against 1e-8";
  EXPECT_NEAR(*off.float16, std::sqrt((1.0 + *off.diverged_16 * *off.diverged_16) / 2.0), 1e-12);
  EXPECT_EQ(*signature_distance("x", zero, wide, published).kl_16, 10.0) << "nothing at all is as far as can be";
  const SignatureDistance none = signature_distance("x", in, wide, {});
  EXPECT_FALSE(none.both || none.float16) << "nothing published, nothing to compare";
}

}  // namespace
}  // namespace kvdiv::test
