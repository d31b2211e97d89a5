// Births: `trace` names the operation that makes a difference. Whether an arm's rounding alone makes one is a matter of the
// CPU, so both arms' values are rounded to a grid far coarser than that: nothing differs but what is planted.
#include <ATen/ops/neg.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "experiments/trace_births.h"
#include "experiments/trace_support.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

/// The same, and in decode steps 2^-6 more at one site of one layer (from 0).
EditTap on_grid_but(Site site, std::int64_t layer) {
  return EditTap([](Site, std::int64_t) { return true; },
                 [site, layer](Site s, std::int64_t l, const at::Tensor& x) {
                   const at::Tensor rounded = to_grid(x);
                   return s == site && l == layer && x.size(row_dimension(s)) == 1 ? at::add(rounded, 0x1p-6) : rounded;
                 });
}

bool is_stored(const Json& record) { return record["operation"].get<std::string>().starts_with("stored"); }

struct PlantedOperation {
  const char* model;
  Site site;
  std::int64_t layer;  ///< from 0
  const char* name;
};

void finds(const PlantedOperation& planted) {
  SCOPED_TRACE(fmt::format("{} {} layer {}", planted.model, planted.name, planted.layer + 1));
  Fixture f = toy(planted.model, 1);
  EditTap on = on_grid_but(planted.site, planted.layer), off = on_grid();
  f.planted = {&on, &off};
  const ExperimentResult r = trace(f, quick(DType::float64, {1, 3}));
  // A row of logits is as long in the prefill, so this fault is in that one too, where it must not be.
  EXPECT_EQ(r.verdict["kind"], planted.site == Site::logits ? "invalid" : "born") << r.verdict << r.controls;
  const Json expected = {{"operation", planted.name}, {"n", 2}, {"rate", 1.0}, {"layer", planted.layer + 1}};
  EXPECT_EQ(r.conditions[0]["first_born"], Json::array({expected}));
  int n_found = 0;
  for (const Json& record : records_of(f, "trace_birth")) {
    if (is_stored(record)) continue;  // what earlier steps left behind
    const bool here = record["operation"] == planted.name && record["layer"] == planted.layer + 1;
    n_found += here;
    EXPECT_EQ(record["inputs_equal"] == true && record["output_equal"] == false, here) << record;
    EXPECT_EQ(record["isolated_equal"], !here) << record;
    EXPECT_EQ(record["isolated_max_abs"], here ? 0x1p-6 : 0.0) << record;
  }
  EXPECT_EQ(n_found, 2);
  const Json row = row_of(r.conditions[0]["births"], {{"layer", planted.layer + 1}, {"operation", planted.name}});
  EXPECT_EQ(row["natural_rate"], 1.0);
  EXPECT_EQ(row["isolated_rate"]["value"], 1.0);
}

TEST(TraceBirths, FindTheOperationOfALayer) {
  for (const PlantedOperation& planted : std::initializer_list<PlantedOperation>{
           {"toy-llama", Site::attention_norm, 1, "norm"},
           {"toy-llama", Site::query, 0, "q"},
           {"toy-llama", Site::key, 2, "k"},
           {"toy-llama", Site::value, 4, "v"},
           {"toy-llama", Site::query_rotary, 3, "rotary_q"},
           {"toy-llama", Site::key_rotary, 1, "rotary_k"},
           {"toy-mistral", Site::scores, 2, "scores"},
           {"toy-mistral", Site::weights, 1, "softmax"},
           {"toy-mistral", Site::mix, 0, "mix"},
           {"toy-mistral", Site::attention_out, 3, "output_projection"},
           {"toy-mistral", Site::attention_residual, 2, "attention_residual"},
           {"toy-gemma2", Site::capped_scores, 1, "cap"},
           {"toy-gemma2", Site::attention_post_norm, 2, "attention_post_norm"},
           {"toy-gemma2", Site::mlp_norm, 0, "mlp_norm"},
           {"toy-gemma2", Site::mlp_post_norm, 3, "mlp_post_norm"},
           {"toy-llama", Site::gate, 3, "gate"},
           {"toy-llama", Site::up, 0, "up"},
           {"toy-llama", Site::mlp_product, 2, "product"},
           {"toy-llama", Site::mlp_out, 1, "down"},
           {"toy-llama", Site::block, 2, "residual"},
           {"toy-llama", Site::final_norm, 5, "final_norm"},
           {"toy-llama", Site::logits, 5, "head"}})
    finds(planted);
}

// With windows ON's rows are shorter than OFF's: what is compared must be the same keys.
TEST(TraceBirths, NothingIsBornWhereNothingDiffers) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 1);
    EditTap on = on_grid(), off = on_grid();
    f.planted = {&on, &off};
    const ExperimentResult r = trace(f, quick(DType::float64, {1, 44}));
    EXPECT_EQ(r.verdict["kind"], "none") << name << r.verdict << r.controls;
    EXPECT_EQ(r.conditions[0]["first_born"][0]["operation"], "none");
    for (const Json& record : records_of(f, "trace_birth")) {
      EXPECT_EQ(record["output_equal"], true) << name << record;
      EXPECT_EQ(record["isolated_equal"], true) << name << record;
    }
    for (const Json& row : r.conditions[0]["kv"]) EXPECT_EQ(row["k_on_off"]["max"], 0.0);
  }
}

// A difference of an earlier step is not this step's: it comes with the cache, whatever layer it was born in.
TEST(TraceBirths, ACacheThatDiffersIsNotAnOperation) {
  Fixture f = toy("toy-llama", 1);
  EditTap on([](Site, std::int64_t) { return true; },
             [](Site s, std::int64_t l, const at::Tensor& x) {
               const at::Tensor rounded = to_grid(x);
               return s == Site::value && l == 1 && x.size(2) > 1 ? at::add(rounded, 0x1p-6) : rounded;
             });
  EditTap off = on_grid();
  f.planted = {&on, &off};
  const ExperimentResult r = trace(f, quick(DType::float64, {1, 2}));
  const Json expected = {{"operation", "stored_values"}, {"n", 2}, {"rate", 1.0}, {"layer", 2}};
  EXPECT_EQ(r.conditions[0]["first_born"], Json::array({expected}));
  for (const Json& record : records_of(f, "trace_birth")) {
    if (!is_stored(record)) {
      EXPECT_EQ(record["isolated_equal"], true) << record;
      EXPECT_FALSE(record["inputs_equal"] == true && record["output_equal"] == false) << record;
    } else {
      const bool before = record["layer"] < 2 || (record["layer"] == 2 && record["operation"] == "stored_keys");
      EXPECT_EQ(record["isolated_equal"], before) << record;
    }
  }
}

TEST(TraceBirths, ZerosOfBothSignsDiffer) {
  const at::Tensor zero = at::zeros({2}), minus_zero = at::neg(zero);
  EXPECT_TRUE(difference_of(zero, zero).equal);
  EXPECT_FALSE(difference_of(zero, minus_zero).equal);
  EXPECT_EQ(difference_of(zero, minus_zero).max_abs, 0.0);
}

TEST(TraceBirths, FusedAttentionIsOneOperation) {
  Fixture f = toy("toy-mistral", 1);
  TraceParams params = quick(DType::float16, {1});
  params.attention = "sdpa";
  const ExperimentResult r = trace(f, params);
  EXPECT_EQ(r.controls["tap_changes_no_bit"], true);
  EXPECT_EQ(r.controls["isolated_all_equal_gives_off"], true);
  std::set<std::string> names;
  for (const Json& record : records_of(f, "trace_birth")) names.insert(record["operation"].get<std::string>());
  EXPECT_TRUE(names.contains("attention"));
  EXPECT_FALSE(names.contains("scores") || names.contains("softmax") || names.contains("mix"));
}

}  // namespace
}  // namespace kvdiv::test
