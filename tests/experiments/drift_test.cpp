// `drift` against faults planted on purpose, and against comparisons that mean nothing.
#include "kvdiv/experiments/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

ExperimentResult drift(Fixture& f, const DriftParams& params) {
  Context context = f.context();
  return run_drift(context, params);
}

DriftParams at_step(std::int64_t step, DType dtype = DType::float16) {
  DriftParams p;
  p.step = step;
  p.dtype = {dtype};
  return p;
}

TEST(Drift, NothingDiffersInThePrefill) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 2);
    const ExperimentResult r = drift(f, at_step(0));
    EXPECT_EQ(r.verdict["kind"], "none") << r.verdict;
    EXPECT_EQ(r.controls["prefill_bit_equal"], true);
    for (const Json& record : f.sink.others)
      if (record.contains("l2")) {
        EXPECT_EQ(record["l2"], 0.0) << record;
        EXPECT_EQ(record["cosine"], 1.0) << record;
      }
  }
}

TEST(Drift, RecordsHaveEveryLayerAndHead) {
  Fixture f = toy("toy-gemma2", 3);
  drift(f, at_step(1));
  const auto& s = f.config.sizes;
  EXPECT_EQ(f.sink.n_records["layer"], 3 * (s.n_layers + 2));
  EXPECT_EQ(f.sink.n_records["head"], 3 * s.n_layers * s.n_heads);
  EXPECT_EQ(f.sink.others.front()["layer"], 0);
  EXPECT_EQ(f.sink.others.front()["l2"], 0.0) << "the same token has the same embedding";
  EXPECT_EQ(f.sink.others[static_cast<std::size_t>(s.n_layers + 1)]["layer"], "norm");
}

// In float64 what the arms differ by themselves is 1e-15: the planted difference stands out at its own layer, with its own
// size.
TEST(Drift, FindsThePlantedLayer) {
  Fixture f = toy("toy-mistral", 2);
  const double size = 1e-3, norm = size * std::sqrt(static_cast<double>(f.config.sizes.hidden));
  for (std::int64_t planted = 0; planted < f.config.sizes.n_layers; ++planted) {
    EditTap tap = add_in_decode(Site::block, planted, size);
    f.planted = {&tap, nullptr};
    const ExperimentResult r = drift(f, at_step(2, DType::float64));
    const Json& rows = r.conditions[0]["by_layer"];
    for (std::int64_t layer = 0; layer <= planted; ++layer)
      EXPECT_LT(rows[static_cast<std::size_t>(layer)]["l2"]["max"].get<double>(), 1e-11);
    const Json& found = rows[static_cast<std::size_t>(planted + 1)];
    EXPECT_NEAR(found["l2"]["mean"].get<double>() / norm, 1.0, 1e-9);
    if (planted > 0) {
      EXPECT_EQ(r.conditions[0]["largest_amplification"]["layer"], planted + 1);
      EXPECT_EQ(r.verdict["kind"], "explosive");
    }
    EXPECT_EQ(r.controls["prefill_bit_equal"], true);
  }
}

// Rounding alone is never explosive, however large the factor from a single last bit to many of them.
TEST(Drift, RoundingIsGradual) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"})
    for (const DType dtype : {DType::float16, DType::float32}) {
      Fixture f = toy(name, 3);
      const auto kind = drift(f, at_step(3, dtype)).verdict["kind"].get<std::string>();
      EXPECT_TRUE(kind == "gradual" || kind == "none") << name << ' ' << kind;
    }
}

TEST(Drift, AFaultInThePrefillMakesItInvalid) {
  Fixture f = toy("toy-mistral", 1);
  EditTap tap = add_at(Site::block, 1, 1e-3);
  f.planted = {nullptr, &tap};
  const ExperimentResult r = drift(f, at_step(1, DType::float64));
  EXPECT_EQ(r.controls["prefill_bit_equal"], false);
  EXPECT_EQ(r.verdict["kind"], "invalid");
}

TEST(Drift, RefusesStatesOfDifferentTokens) {
  Fixture f = toy("toy-llama", 1);
  EditTap other_token([](Site s, std::int64_t) { return s == Site::logits; },
                      [](Site, std::int64_t, const at::Tensor& x) {
                        at::Tensor out = x.clone();
                        out.select(-1, 77).add_(1000.0);
                        return out;
                      });
  f.planted = {nullptr, &other_token};
  DriftParams params = at_step(2, DType::float32);
  params.clock = Clock::free;
  try {
    drift(f, params);
    FAIL() << "compared the states of different tokens";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_measurement);
    EXPECT_THAT(error.what(), HasSubstr("77"));
    EXPECT_THAT(error.what(), HasSubstr("--unaligned"));
  }
  params.unaligned = true;
  drift(f, params);
  EXPECT_EQ(f.sink.others.back()["token_off"], 77);
  params.clock = Clock::forced;
  params.unaligned = false;
  drift(f, params);
  EXPECT_EQ(f.sink.others.back()["token_off"], f.sink.others.back()["token_on"]);
}

TEST(Drift, AnArmWithoutItsContextIsFarAway) {
  Fixture f = toy("toy-llama", 2);
  DriftParams params = at_step(3, DType::float32);
  params.unaligned = true;
  const ExperimentResult r = drift(f, params);
  const Json& rows = r.conditions[0]["by_layer"];
  EXPECT_EQ(rows[0]["l2"]["max"], 0.0) << "the token is the same";
  EXPECT_GT(rows[1]["rel_l2"]["mean"].get<double>(), 0.1);
  EXPECT_EQ(f.sink.others.front()["position_off"], 0);
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), HasSubstr("Unaligned on purpose"));
}

TEST(Drift, OrderOfPromptsDoesNotMatter) {
  Fixture a = toy("toy-llama", 3), b = toy("toy-llama", 3);
  std::reverse(b.prompts.begin(), b.prompts.end());
  drift(a, at_step(4));
  drift(b, at_step(4));
  EXPECT_EQ(as_set(a.sink.others), as_set(b.sink.others));
}

TEST(Drift, TakesThePromptsOfHighestKl) {
  Fixture f = toy("toy-llama", 3);
  DriftParams params = at_step(1);
  params.samples = 1;
  params.max_steps = 8;
  drift(f, params);
  EXPECT_EQ(f.sink.n_records["layer"], f.config.sizes.n_layers + 2);
}

TEST(Drift, RefusesWhatCannotBe) {
  DriftParams params;
  params.step = -1;
  EXPECT_THROW(validate(params), Error);
  params = {};
  params.clock = Clock::both;
  EXPECT_THROW(validate(params), Error);
  params = {};
  params.samples = 0;
  EXPECT_THROW(validate(params), Error);
}

}  // namespace
}  // namespace kvdiv::test
