// `trace` as a whole, and its errors of K and V, against faults planted on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "experiments/trace_kv.h"
#include "experiments/trace_support.h"
#include "kvdiv/decode/patching.h"
#include "kvdiv/model/memory.h"
#include "support/planted.h"

namespace kvdiv::test {
namespace {

TEST(Trace, ControlsHoldOnEveryToy) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 2);
    const ExperimentResult r = trace(f, quick(DType::float16, {1, 6}));
    for (const char* control : {"prefill_bit_equal", "tap_changes_no_bit", "isolated_all_equal_gives_off"})
      EXPECT_EQ(r.controls[control], true) << name << ' ' << control;
    EXPECT_TRUE(r.controls["gqa_copies_are_the_function"].is_null());
    EXPECT_NE(r.verdict["kind"], "invalid");
    const auto& s = f.config.sizes;
    EXPECT_EQ(f.sink.n_records["trace_kv"], 2 * 2 * s.n_layers * s.n_kv_heads);
    EXPECT_TRUE(r.complete);
  }
}

TEST(Trace, AFaultInThePrefillMakesItInvalid) {
  Fixture f = toy("toy-llama", 1);
  EditTap tap = add_at(Site::block, 1, 1e-3);
  f.planted = {nullptr, &tap};
  EXPECT_EQ(trace(f, quick(DType::float64, {1})).verdict["kind"], "invalid");
}

/// Multiplies one KV head of a layer's values (or keys) in ON's decode.
EditTap scale_head(Site site, std::int64_t layer, std::int64_t head, double factor) {
  return EditTap([site, layer](Site s, std::int64_t l) { return s == site && l == layer; },
                 [head, factor](Site, std::int64_t, const at::Tensor& x) {
                   at::Tensor out = x.clone();
                   if (x.size(2) == 1) out.select(1, head).mul_(factor);
                   return out;
                 });
}

// The last layer, so that nothing is inherited. What float64 differs by itself is 1e-15.
TEST(TraceKv, FindTheHeadAndItsSize) {
  for (const bool values : {false, true}) {
    Fixture f = toy("toy-llama", 2);
    const std::int64_t last = f.config.sizes.n_layers, head = 2;
    EditTap tap = scale_head(values ? Site::value : Site::key_rotary, last - 1, head, 1.001);
    f.planted = {&tap, nullptr};
    const ExperimentResult r = trace(f, quick(DType::float64, {1, 5}));
    const std::string planted = values ? "v" : "k", other = values ? "k" : "v";
    int n_rows = 0;
    for (const Json& row : r.conditions[0]["kv_by_head"]) {
      const bool here = row["layer"] == last && row["kv_head"] == head;
      EXPECT_LT(row[other + "_on_off"]["max"].get<double>(), 1e-12) << row;
      EXPECT_LT(row[planted + "_off_fp64"]["max"].get<double>(), 1e-12) << row;
      for (const char* against : {"_on_off", "_on_fp64"}) {
        const Json& stat = row[planted + against];
        if (!here || row["positions"] == "prompt") { EXPECT_LT(stat["max"].get<double>(), 1e-12) << row; }
        if (here && row["positions"] == "generated") {
          EXPECT_NEAR(stat["min"].get<double>(), 1e-3, 1e-12) << row;
          EXPECT_NEAR(stat["max"].get<double>(), 1e-3, 1e-12) << row;
          ++n_rows;
        }
      }
    }
    EXPECT_EQ(n_rows, 2 * 2);
    for (const Json& record : records_of(f, "trace_kv")) {
      const Json& errors = record[planted + "_on_off"];
      const auto n_prompt = record["n_prompt"].get<std::size_t>();
      ASSERT_EQ(errors.size(), n_prompt + record["step"].get<std::size_t>());
      for (std::size_t p = 0; p < errors.size(); ++p) {
        const bool here = record["layer"] == last && record["kv_head"] == head && p >= n_prompt;
        EXPECT_NEAR(errors[p].get<double>(), here ? 1e-3 : 0.0, 1e-12) << p;
      }
    }
  }
}

// Against what another function says the arms hold.
TEST(TraceKv, ErrorsAreThoseOfTheStates) {
  const LoadedModel model = load(toy_dir("toy-mistral"), DType::float16);
  EditTap tap = add_in_decode(Site::block, 0, 0.01);
  const Arms arms(model.decoder, {&tap, nullptr});
  Fixture f = toy("toy-mistral", 1);
  TrajectoryRequest request;
  request.prompt = f.prompts[0].ids;
  request.max_steps = 6;
  const Trajectory t = decode_trajectory(arms, request);
  const StepStates on = states_of_on(arms, t, 4), off = states_of_off(arms, t, 4);
  const KvErrors errors = kv_errors(kv_of_on(t, 4, 4), kv_of_off(arms, t.prefix(4)), nullptr);
  EXPECT_TRUE(errors.values[1].empty());
  double largest = 0.0;
  for (std::size_t layer = 0; layer < on.keys.size(); ++layer)
    for (std::int64_t head = 0; head < on.keys[layer].size(1); ++head)
      for (std::int64_t p = 0; p < on.keys[layer].size(2); ++p) {
        const auto a = to_doubles(on.keys[layer].select(1, head).select(1, p));
        const auto b = to_doubles(off.keys[layer].select(1, head).select(1, p));
        double difference = 0.0, size = 0.0;
        for (std::size_t d = 0; d < a.size(); ++d) difference += (a[d] - b[d]) * (a[d] - b[d]), size += b[d] * b[d];
        EXPECT_NEAR(errors.head(0, layer, head)[static_cast<std::size_t>(p)], std::sqrt(difference / size), 1e-12);
        largest = std::max(largest, difference);
      }
  EXPECT_GT(largest, 0.0);
}

TEST(TraceKv, Float32IsAsFarFromFp64AsItsRoundingMakesIt) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"}) {
    Fixture f = toy(name, 2);
    const ExperimentResult r = trace(f, quick(DType::float32, {1, 8}));
    for (const Json& row : r.conditions[0]["kv"])
      for (const char* quantity : {"k_on_fp64", "k_off_fp64", "v_on_fp64", "v_off_fp64"}) {
        EXPECT_LT(row[quantity]["max"].get<double>(), 1e-5) << name << row;
        EXPECT_GT(row[quantity]["min"].get<double>(), 1e-9) << name << row;
      }
  }
}

// ON's newest stored value is off by 1e-6·10^(0.05·step): the tap writes into the cache that it is shown.
TEST(TraceKv, GrowthHasThePlantedSlope) {
  Fixture f = toy("toy-llama", 1);
  const std::int64_t last = f.config.sizes.n_layers - 1, n_prompt = std::ssize(f.prompts[0].ids);
  EditTap tap([last](Site s, std::int64_t l) { return s == Site::values && l == last; },
              [n_prompt](Site, std::int64_t, const at::Tensor& x) {
                const auto step = static_cast<double>(x.size(2) - n_prompt);
                if (step > 0.0) last_row(Site::values, x).mul_(1.0 + 1e-6 * std::pow(10.0, 0.05 * step));
                return x;
              });
  f.planted = {&tap, nullptr};
  const ExperimentResult r = trace(f, quick(DType::float64, {1, 20}));
  const Json& rows = r.conditions[0]["growth"];
  for (const char* quantity : {"v_on_off", "v_on_fp64"})
    for (const Json& layer : {Json("all"), Json(last + 1)}) {
      const Json newest = row_of(rows, {{"quantity", quantity}, {"of", "newest"}, {"layer", layer}});
      EXPECT_NEAR(newest["slope"]["value"].get<double>(), 0.05, 1e-6) << newest;
      EXPECT_EQ(newest["n_zero_steps"], 0);
    }
  // The root mean square of what is stored grows as that of a geometric series.
  std::vector<double> x, y;
  double sum = 0.0;
  for (int s = 1; s <= 20; ++s) {
    sum += std::pow(10.0, 2 * 0.05 * s);
    x.push_back(s), y.push_back(0.5 * std::log10(sum / s));
  }
  double slope = 0.0, spread = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) slope += (x[i] - 10.5) * y[i], spread += (x[i] - 10.5) * (x[i] - 10.5);
  const Json stored = row_of(rows, {{"quantity", "v_on_off"}, {"of", "generated"}, {"layer", last + 1}});
  EXPECT_NEAR(stored["slope"]["value"].get<double>(), slope / spread, 1e-6);
  const Json kl = row_of(rows, {{"quantity", "kl"}});
  EXPECT_EQ(kl["n_prompts"], 1);
}

TEST(TraceKv, ZeroErrorsAreCountedAndHaveNoLogarithm) {
  Fixture f = toy("toy-llama", 2);
  EditTap on = on_grid(), off = on_grid();
  f.planted = {&on, &off};
  const ExperimentResult r = trace(f, quick(DType::float64, {1, 3}));
  const Json row = row_of(r.conditions[0]["growth"], {{"quantity", "k_on_off"}, {"of", "newest"}, {"layer", "all"}});
  EXPECT_EQ(row["n_zero_steps"], 2 * 3);
  EXPECT_EQ(row["n_prompts"], 0);
  EXPECT_TRUE(row["slope"]["value"].is_null());
}

// The config that the memory check sees is of another size than the model.
ExperimentResult trace_as_if_of(Fixture& f, std::int64_t vocab) {
  f.config.sizes.vocab = vocab;
  TraceParams params = quick(DType::float16, {1, 2});
  params.no_gqa = false;
  params.gqa_draws = 1;
  return trace(f, params);
}

bool warned(const Fixture& f) {
  return std::any_of(f.warnings.all().begin(), f.warnings.all().end(),
                     [](const Warning& w) { return w.code == "fp64_check_skipped"; });
}

TEST(Trace, WithoutMemoryForFp64ItsColumnsAreNull) {
  Fixture f = toy("toy-llama", 1);
  const ExperimentResult r = trace_as_if_of(f, 1'000'000'000'000);
  EXPECT_TRUE(warned(f));
  EXPECT_TRUE(r.complete);
  for (const Json& record : records_of(f, "trace_kv")) {
    EXPECT_TRUE(record["k_on_fp64"].is_null() && record["v_off_fp64"].is_null());
    EXPECT_TRUE(record["k_on_off"].is_array());
  }
  EXPECT_TRUE(r.conditions[0]["kv"][0]["k_on_fp64"]["mean"].is_null());
  EXPECT_TRUE(r.conditions[0]["kv"][0]["k_on_off"]["mean"].is_number());
  EXPECT_FALSE(r.conditions[0].contains("gqa"));
  EXPECT_TRUE(r.controls["gqa_copies_are_the_function"].is_null());
}

TEST(Trace, NoiseTakesFloat32IfThatIsWhatFits) {
  Fixture f = toy("toy-llama", 1);
  ModelConfig config = f.config;
  const auto need = [&](DType wide) {
    const std::int64_t length = std::ssize(f.prompts[0].ids) + 3;
    return memory_need(config, wide, length).total() + memory_need(config, DType::float16, length).total();
  };
  while (static_cast<double>(need(DType::float64)) < 1.25 * static_cast<double>(available_memory_bytes()))
    config.sizes.vocab += config.sizes.vocab / 16;
  const ExperimentResult r = trace_as_if_of(f, config.sizes.vocab);
  EXPECT_TRUE(warned(f));
  EXPECT_TRUE(r.conditions[0]["kv"][0]["k_on_fp64"]["mean"].is_null());
  ASSERT_TRUE(r.conditions[0].contains("gqa"));
  EXPECT_EQ(r.conditions[0]["gqa"][0]["amplification"]["value"], 1.0);
  EXPECT_EQ(r.controls["gqa_copies_are_the_function"], true);
  EXPECT_EQ(r.controls["gqa_attention_is_the_models"], true);
}

TEST(Trace, OrderOfPromptsDoesNotMatter) {
  Fixture a = toy("toy-gemma2", 3), b = toy("toy-gemma2", 3);
  std::reverse(b.prompts.begin(), b.prompts.end());
  TraceParams params = quick(DType::bfloat16, {1, 4});
  params.no_gqa = false;
  params.gqa_draws = 2;
  const ExperimentResult x = trace(a, params), y = trace(b, params);
  for (const char* type : {"trace_kv", "trace_birth"}) EXPECT_EQ(as_set(records_of(a, type)), as_set(records_of(b, type)));
  EXPECT_EQ(x.conditions[0]["first_born"], y.conditions[0]["first_born"]);
  for (std::size_t i = 0; i < x.conditions[0]["gqa"].size(); ++i)
    for (const char* end : {"value", "low", "high"})
      EXPECT_NEAR(x.conditions[0]["gqa"][i]["amplification"][end].get<double>(),
                  y.conditions[0]["gqa"][i]["amplification"][end].get<double>(), 1e-12);
}

TEST(Trace, StopsWhenInterrupted) {
  Fixture f = toy("toy-llama", 3);
  f.progress.interrupt_after = 1;
  const ExperimentResult r = trace(f, quick(DType::float16, {1}));
  set_interrupted(false);
  EXPECT_FALSE(r.complete);
  EXPECT_EQ(f.sink.n_commits, 1);
}

TEST(Trace, RefusesWhatCannotBe) {
  const auto refused = [](const std::function<void(TraceParams&)>& change) { return is_refused(change); };
  EXPECT_FALSE(refused([](TraceParams&) {}));
  EXPECT_TRUE(refused([](TraceParams& p) { p.step = {0}; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.step = {32}; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.step = {1, 1}; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.step.clear(); }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.gqa_prompts = 0; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.gqa_draws = 0; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.gqa_size = 0.0; }));
  EXPECT_TRUE(refused([](TraceParams& p) { p.gqa_size = std::nan(""); }));
}

}  // namespace
}  // namespace kvdiv::test
