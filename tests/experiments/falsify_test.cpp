// `falsify` on a checkpoint: what vanishes with precision and what does not.
#include "kvdiv/experiments/falsify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "experiments/falsify_precision.h"
#include "kvdiv/experiments/run.h"
#include "kvdiv/stats/metrics.h"
#include "support/experiment.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

FalsifyParams quick(std::vector<FalsifyPart> parts) {
  FalsifyParams p;
  p.part = std::move(parts);
  p.max_new_tokens = 12;
  p.seeds = 1;
  return p;
}

ExperimentResult falsify(Fixture& f, const FalsifyParams& params, const PairTable* base = nullptr) {
  Context context = f.context();
  return run_falsify(context, params, base);
}

const Json& having(const ExperimentResult& r, const char* key) {
  for (const Json& c : r.conditions)
    if (c.contains(key)) return c[key];
  fail(ErrorKind::internal, "no condition has {}", key);
}

TEST(Falsify, RoundingVanishesInWiderArithmetic) {
  Fixture f = toy("toy-mistral", 3);
  const ExperimentResult r = falsify(f, quick({FalsifyPart::fp32}));
  const Json& rows = having(r, "rerun");
  ASSERT_EQ(rows.size(), 3u);
  const auto kl = [&](std::size_t i) { return rows[i]["kl_on_off_nats"]["value"].get<double>(); };
  EXPECT_EQ(rows[0]["condition"], "float16/torch/greedy");
  EXPECT_EQ(rows[1]["condition"], "float32/torch/greedy");
  EXPECT_EQ(rows[2]["condition"], "float64/torch/greedy");
  EXPECT_LT(kl(1), 1e-10);
  EXPECT_LT(kl(2), 1e-27);
  EXPECT_EQ(rows[1]["n_steps"], rows[0]["n_steps"]);
  EXPECT_EQ(r.controls["prefill_bit_equal"], true);
  // On a CPU whose FP16 rows do not depend on their number there is nothing to vanish.
  EXPECT_EQ(r.verdict["kind"], kl(0) == 0.0 ? "equivalent" : "rounding") << r.verdict;
}

// A base that is wide already is held against wider dtypes only.
TEST(Falsify, AWideBaseIsJudgedByWhatIsWider) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    Fixture f = toy("toy-mistral", 2);
    FalsifyParams params = quick({FalsifyPart::fp32});
    params.dtype = {dtype};
    EXPECT_EQ(falsify(f, params).verdict["kind"], "rounding") << name_of(dtype);
    EditTap tap = add_in_decode(Site::block, 0, 0.05);
    f.planted = {&tap, nullptr};
    EXPECT_EQ(falsify(f, params).verdict["kind"], "not_rounding") << name_of(dtype);
  }
}

// A fault of the cache is there in every dtype, and of the same size.
TEST(Falsify, AFaultDoesNotVanish) {
  Fixture f = toy("toy-mistral", 3);
  EditTap tap = add_in_decode(Site::block, 0, 0.05);
  f.planted = {&tap, nullptr};
  const ExperimentResult r = falsify(f, quick({FalsifyPart::fp32}));
  const Json& rows = having(r, "rerun");
  EXPECT_EQ(r.verdict["kind"], "not_rounding");
  for (const Json& row : rows) {
    EXPECT_GT(row["kl_on_off_nats"]["value"].get<double>(), 1e-6);
    EXPECT_NEAR(row["ratio_to_base"]["value"].get<double>(), 1.0, 0.2);
  }
}

TEST(Falsify, AFaultInThePrefillMakesItInvalid) {
  Fixture f = toy("toy-mistral", 1);
  EditTap tap = add_at(Site::block, 0, 0.05);
  f.planted = {nullptr, &tap};
  EXPECT_EQ(falsify(f, quick({FalsifyPart::fp32})).verdict["kind"], "invalid");
}

// In `paper` the pairs of the run are used again: the same numbers as on its own.
TEST(Falsify, PairsOfARunGiveTheSame) {
  Fixture alone = toy("toy-llama", 2), with_run = toy("toy-llama", 2);
  const FalsifyParams params = quick({FalsifyPart::flip_kl, FalsifyPart::fp32});
  const ExperimentResult a = falsify(alone, params);
  RunParams run;
  run.max_new_tokens = params.max_new_tokens;
  run.seeds = 1;
  Context context = with_run.context();
  run_experiment(context, run);
  const PairTable table = table_of(with_run.sink);
  const ExperimentResult b = falsify(with_run, params, &table);
  EXPECT_EQ(having(a, "rerun"), having(b, "rerun"));
  EXPECT_EQ(having(a, "flip_kl"), having(b, "flip_kl"));
}

TEST(Falsify, ProjectionHasARowALayer) {
  for (const DType dtype : {DType::float16, DType::float32, DType::float64}) {
    Fixture f = toy("toy-gemma2", 2);
    FalsifyParams params = quick({FalsifyPart::projection});
    params.dtype = {dtype};
    const ExperimentResult r = falsify(f, params);
    const Json& rows = having(r, "by_layer");
    ASSERT_EQ(static_cast<std::int64_t>(rows.size()), f.config.sizes.n_layers);
    for (const Json& row : rows)
      for (const char* name : {"k", "v"}) {
        EXPECT_GE(row[fmt::format("{}_max_ulp", name)].get<double>(), row[fmt::format("{}_mean_ulp", name)].get<double>());
        const double limit = dtype == DType::float16 ? 1e-3 : dtype == DType::float32 ? 1e-6 : 1e-14;
        EXPECT_LT(row[fmt::format("{}_rel_l2", name)].get<double>(), limit) << name_of(dtype);
        EXPECT_LE(row[fmt::format("{}_differing_rate", name)].get<double>(), 1.0);
      }
  }
}

TEST(Falsify, AMetricInFp32HasAFloor) {
  std::vector<double> on(4096), off(4096);
  for (std::size_t i = 0; i < on.size(); ++i) {
    on[i] = 3.0 * std::sin(static_cast<double>(i) * 0.37);
    off[i] = on[i] + 1e-7 * std::cos(static_cast<double>(i));
  }
  const double truth = compare_logits(on, off).kl_on_off_nats, seen = std::abs(kl_in_fp32(on, off));
  EXPECT_LT(truth, 1e-13);
  EXPECT_GT(seen, 1e3 * truth) << "this is the metric's own rounding";
  EXPECT_LT(seen, 1e-5);
  for (double& v : off) v = 0.7 * v;
  EXPECT_NEAR(kl_in_fp32(on, off) / compare_logits(on, off).kl_on_off_nats, 1.0, 1e-4) << "large ones it gets right";
}

TEST(Falsify, OwnOrderControlIsOfTheSameArm) {
  Fixture f = toy("toy-llama", 2);
  const LoadedModel model = load(f.dir, DType::float64);
  std::vector<const PromptItem*> prompts{&f.prompts[0], &f.prompts[1]};
  DecodeParams params;
  params.max_new_tokens = 6;
  const Json j = own_order_control(model.decoder, params, prompts);
  EXPECT_EQ(j["n_steps"], 12);
  for (const Json& row : j["rows"]) EXPECT_LT(row["kl_nats"]["value"].get<double>(), 1e-26) << row;
}

TEST(Falsify, OneOrderLeavesNothingAndTwoMakeTheDifference) {
  Fixture f = toy("toy-llama", 2);
  FalsifyParams params = quick({FalsifyPart::orders});
  params.max_new_tokens = 4;
  const ExperimentResult r = falsify(f, params);
  const Json& rows = having(r, "orders");
  ASSERT_EQ(rows.size(), 14u);
  std::map<std::string, double> largest;  // by dtype and accumulator
  for (const Json& row : rows) {
    EXPECT_EQ(row["n_steps"], 8);
    EXPECT_EQ(row["same_order"], row["backend"].get<std::string>().find("decode=") == std::string::npos);
    const double kl = row["kl_on_off_nats"]["value"].get<double>();
    if (row["same_order"].get<bool>()) {
      EXPECT_EQ(row["bit_equal_rate"], 1.0) << row;
      EXPECT_EQ(kl, 0.0) << row;
      EXPECT_EQ(row["max_abs_dlogit"], 0.0) << row;
    } else {
      EXPECT_GE(row["bit_equal_rate"].get<double>(), 0.25) << "step 0 of each prompt is the same work: " << row;
      EXPECT_LT(kl, 1e-2) << row;
      double& most = largest[row["dtype"].get<std::string>() + "@" + row["accumulator"].get<std::string>()];
      most = std::max(most, kl);
    }
  }
  EXPECT_EQ(largest.size(), 4u);
  EXPECT_GT(largest["float16@float16"], 1e-8);
  EXPECT_GT(largest["float32@float32"], 0.0);
  EXPECT_LT(largest["float32@float32"], 1e-3 * largest["float16@float16"]);
  EXPECT_EQ(r.controls["same_order_bit_equal"], true);
  EXPECT_EQ(r.verdict["kind"], "measured");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), testing::HasSubstr("all 56 steps are bit-equal"));
  EXPECT_EQ(f.sink.n_records.size(), 0u) << "no pair goes to the records";
}

// What is there with one order for both arms is no order's doing.
TEST(Falsify, AFaultIsThereWithOneOrderToo) {
  Fixture f = toy("toy-llama", 1);
  EditTap tap = add_in_decode(Site::block, 0, 0.05);
  f.planted = {&tap, nullptr};
  FalsifyParams params = quick({FalsifyPart::orders});
  params.max_new_tokens = 2;
  const ExperimentResult r = falsify(f, params);
  EXPECT_EQ(r.controls["same_order_bit_equal"], false);
  EXPECT_EQ(r.verdict["kind"], "not_rounding");
  EXPECT_THAT(r.verdict["sentence"].get<std::string>(), testing::HasSubstr("7 of 14 steps still differ"));
}

TEST(Falsify, PartsAreWhatWasAskedFor) {
  Fixture f = toy("toy-llama", 1);
  const ExperimentResult r = falsify(f, quick({FalsifyPart::propagation}));
  ASSERT_EQ(r.conditions.size(), 1u);
  EXPECT_EQ(r.conditions[0]["part"], "propagation");
  EXPECT_EQ(f.sink.n_records.size(), 0u) << "no pair was decoded";
  FalsifyParams none;
  none.part.clear();
  EXPECT_THROW(validate(none), Error);
}

}  // namespace
}  // namespace kvdiv::test
