// The rotary base and the windows: every published spelling, and every one that must not be read as another.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "model/config_support.h"

namespace kvdiv::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- rotary base ---------------------------------------------------------------------------------------------------

TEST(ConfigRope, EverySpellingGivesTheSameTheta) {
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2}) {
    const Json flat{{"rope_type", "default"}, {"rope_theta", 1e6}};
    for (const Json& changes :
         {Json{{"rope_theta", 1e6}}, Json{{"rope_theta", 1000000}}, Json{{"rope_parameters", flat}},
          Json{{"rope_parameters", {{"rope_theta", 1e6}}}},
          Json{{"rope_parameters", {{"type", "default"}, {"rope_theta", 1e6}}}},
          Json{{"rope_theta", nullptr}, {"rope_parameters", flat}},
          Json{{"rope_theta", 1e6}, {"rope_parameters", flat}}, Json{{"rope_theta", 1e6}, {"rope_scaling", nullptr}},
          Json{{"rope_theta", 1e6}, {"rope_scaling", Json::object()}},
          Json{{"rope_theta", 1e6}, {"rope_scaling", {{"type", "default"}}}},
          Json{{"rope_theta", 1e6}, {"rope_scaling", {{"rope_type", "default"}, {"factor", 1.0}}}},
          Json{{"rope_parameters", {{"full_attention", flat}, {"sliding_attention", flat}}}},
          Json{{"rope_parameters", {{"full_attention", flat}, {"sliding_attention", nullptr}}}}}) {
      const Parsed parsed = parse(with(toy(family), changes));
      EXPECT_EQ(parsed.model.rope_theta, 1e6) << changes;
      EXPECT_EQ(std::count(parsed.codes.begin(), parsed.codes.end(), "rope_theta_conflict"), 0) << changes;
    }
  }
}

TEST(ConfigRope, WithoutAnyThetaItIsTenThousand) {
  EXPECT_EQ(parse(with(toy(Family::llama), {{"rope_scaling", nullptr}})).model.rope_theta, 10000.0);
  EXPECT_EQ(parse(with(toy(Family::llama), {{"rope_parameters", {{"rope_type", "default"}}}})).model.rope_theta,
            10000.0);
  EXPECT_EQ(parse(with(toy(Family::llama), {{"rope_parameters", nullptr}})).model.rope_theta, 10000.0);
}

TEST(ConfigRope, InAConflictTheNestedThetaWinsWithAWarning) {
  const Json conflict{{"rope_theta", 5e4}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  const Parsed parsed = parse(with(toy(Family::llama), conflict));
  EXPECT_EQ(parsed.model.rope_theta, 1e6);
  EXPECT_THAT(parsed.codes, ElementsAre("rope_theta_conflict"));
  const Json scaling{{"rope_theta", 5e4}, {"rope_scaling", {{"type", "default"}, {"rope_theta", 7e5}}}};
  EXPECT_EQ(parse(with(toy(Family::llama), scaling)).model.rope_theta, 7e5);
  EXPECT_THAT(why(with(toy(Family::llama),
                       {{"rope_scaling", {{"rope_theta", 7e5}}}, {"rope_parameters", {{"rope_theta", 1e6}}}})),
              HasSubstr("rope_scaling = {\"rope_theta\":700000.0}: expected the same as rope_parameters"));
}

TEST(ConfigRope, DifferentThetasPerLayerTypeAreRefused) {
  const Json nested{{"full_attention", {{"rope_theta", 1e6}}}, {"sliding_attention", {{"rope_theta", 1e4}}}};
  EXPECT_THAT(why(with(toy(Family::gemma2), {{"rope_parameters", nested}})),
              AllOf(HasSubstr("rope_parameters = "), HasSubstr("one rope_theta for all layer types")));
  EXPECT_THAT(why(with(toy(Family::gemma2),
                       {{"rope_parameters", {{"rope_theta", 1e4}, {"full_attention", {{"rope_theta", 1e6}}}}}})),
              HasSubstr("one rope_theta for all layer types"));
  EXPECT_THAT(why(with(toy(Family::gemma2), {{"rope_parameters", {{"chunked_attention", {{"rope_theta", 1e6}}}}}})),
              HasSubstr("rope_parameters.chunked_attention"));
}

TEST(ConfigRope, EveryScalingIsRefusedByKeyAndValue) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    for (const char* type_key : {"type", "rope_type"})
      for (const char* type :
           {"linear", "dynamic", "yarn", "llama3", "longrope", "su", "mrope", "proportional", "none"})
        EXPECT_THAT(why(with(toy(Family::llama), {{key, {{type_key, type}, {"factor", 8.0}, {"rope_theta", 5e5}}}})),
                    HasSubstr(fmt::format("config.json: {}.{} = \"{}\": expected \"default\"", key, type_key, type)));
  const Json llama3{{"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192},
                    {"rope_type", "llama3"}};
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_theta", 5e5}, {"rope_scaling", llama3}})),
              HasSubstr("rope_scaling."));
  // Both type keys: neither may hide the other.
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_scaling", {{"rope_type", "default"}, {"type", "linear"}}}})),
              HasSubstr("rope_scaling.type = \"linear\""));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_scaling", {{"type", "default"}, {"factor", 2.0}}}})),
              HasSubstr("rope_scaling.factor = 2.0: expected 1"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_scaling", {{"type", "default"}, {"mrope_section", {1, 2}}}}})),
              HasSubstr("rope_scaling.mrope_section = [1,2]"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_scaling", 2.0}})),
              HasSubstr("rope_scaling = 2.0: expected an object"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_scaling", "linear"}})), HasSubstr("rope_scaling = \"linear\""));
  EXPECT_THAT(why(with(toy(Family::gemma2), {{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}}})),
              HasSubstr("rope_parameters.full_attention.rope_type = \"yarn\""));
}

TEST(ConfigRope, ThetaIsANumberAboveZero) {
  for (const Json& bad : {Json(0), Json(-1.0), Json("10000"), Json(nullptr), Json::array({1e4})})
    EXPECT_THAT(why(with(toy(Family::llama), {{"rope_theta", bad}})),
                HasSubstr("config.json: rope_theta = " + bad.dump() + ": expected a number above 0"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_parameters", {{"rope_theta", 0}}}})),
              HasSubstr("rope_parameters.rope_theta = 0"));
}

TEST(ConfigRope, PartialRotationIsRefused) {
  EXPECT_THAT(why(with(toy(Family::llama), {{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor = 0.5"));
  EXPECT_EQ(why(with(toy(Family::llama), {{"partial_rotary_factor", 1.0}})), "no error");
  EXPECT_THAT(why(with(toy(Family::llama), {{"rope_parameters", {{"partial_rotary_factor", 0.25}}}})),
              HasSubstr("rope_parameters.partial_rotary_factor = 0.25"));
}

// ---- windows -------------------------------------------------------------------------------------------------------

Windows windows(const Json& config) { return parse(config).model.traits.windows; }

TEST(ConfigWindows, MistralSlidesEverywhere) {
  EXPECT_EQ(windows(with(toy(Family::mistral), {{"sliding_window", 4}})), (Windows{4, 4, 4}));
  EXPECT_EQ(windows(with(toy(Family::mistral), {{"sliding_window", nullptr}})), (Windows{kFull, kFull, kFull}));
  EXPECT_THAT(parse(with(toy(Family::mistral), {{"sliding_window", nullptr}})).codes, IsEmpty());
  const Parsed absent = parse(toy(Family::mistral));
  EXPECT_EQ(absent.model.traits.windows, (Windows{4096, 4096, 4096}));
  EXPECT_THAT(absent.codes, ElementsAre("sliding_window_default"));
}

TEST(ConfigWindows, MistralObeysLayerTypes) {  // reference: AutoModel reads such a file as Ministral
  const Json types{"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(windows(with(toy(Family::mistral), {{"sliding_window", 4}, {"layer_types", types}})),
            (Windows{kFull, 4, kFull}));
  const Json full{"full_attention", "full_attention", "full_attention"};
  EXPECT_THAT(parse(with(toy(Family::mistral), {{"layer_types", full}})).codes, IsEmpty());
  EXPECT_THAT(why(with(toy(Family::mistral), {{"sliding_window", nullptr}, {"layer_types", types}})),
              HasSubstr("sliding_window = null: expected a number: layer_types has layers of sliding_attention"));
}

TEST(ConfigWindows, Gemma2AlternatesFromLayerZeroOrObeysTheList) {
  EXPECT_EQ(windows(toy(Family::gemma2)), (Windows{4096, kFull, 4096}));
  EXPECT_THAT(parse(toy(Family::gemma2)).codes, IsEmpty());
  EXPECT_EQ(windows(with(toy(Family::gemma2), {{"sliding_window", 4}})), (Windows{4, kFull, 4}));
  EXPECT_EQ(windows(with(toy(Family::gemma2), {{"sliding_window", 4}, {"layer_types", nullptr}})),
            (Windows{4, kFull, 4}));
  const Json reversed{"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(windows(with(toy(Family::gemma2), {{"sliding_window", 4}, {"layer_types", reversed}})),
            (Windows{kFull, 4, kFull}));
  EXPECT_EQ(windows(with(toy(Family::gemma2), {{"sliding_window", nullptr}})), (Windows{kFull, kFull, kFull}));
}

TEST(ConfigWindows, LayerTypesAreChecked) {
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2}) {
    EXPECT_THAT(why(with(toy(family), {{"layer_types", {"full_attention"}}})),
                HasSubstr("layer_types: 1 entries, but num_hidden_layers is 3"));
    EXPECT_THAT(why(with(toy(family), {{"layer_types", {"full_attention", "chunked_attention", "full_attention"}}})),
                HasSubstr("layer_types[1] = \"chunked_attention\": expected full_attention or sliding_attention"));
    EXPECT_THAT(why(with(toy(family), {{"layer_types", "full_attention"}})),
                HasSubstr("expected a list, one entry a layer"));
  }
}

TEST(ConfigWindows, WrongWindowsAreRefusedByValue) {
  for (const Family family : {Family::mistral, Family::gemma2}) {
    for (const Json& bad :
         {Json(0), Json(-4), Json(4.0), Json("4"), Json(true), Json{{"size", 4}}, Json(std::uint64_t{1} << 63)})
      EXPECT_THAT(
          why(with(toy(family), {{"sliding_window", bad}})),
          HasSubstr("config.json: sliding_window = " + bad.dump() + ": expected an integer of at least 2, or null"));
    EXPECT_THAT(why(with(toy(family), {{"sliding_window", 1}})),
                AllOf(HasSubstr("sliding_window = 1: expected at least 2"),
                      HasSubstr("the reference's own arms differ by logits")));
    EXPECT_EQ(windows(with(toy(family), {{"sliding_window", {4, nullptr, 6}}})), (Windows{4, kFull, 6}));
    EXPECT_THAT(why(with(toy(family), {{"sliding_window", {4, nullptr}}})),
                HasSubstr("sliding_window = [4,null]: expected a number or null, or a list of 3 of them"));
    EXPECT_THAT(why(with(toy(family), {{"sliding_window", {4, 1, 4}}})), HasSubstr("sliding_window = [4,1,4]"));
    EXPECT_THAT(why(with(toy(family), {{"sliding_window", {4, "x", 4}}})), HasSubstr("sliding_window = [4,\"x\",4]"));
  }
}

TEST(ConfigWindows, LlamaHasNone) {  // reference: the cache is cut, the mask is not, so that its arms differ by 0.17
  EXPECT_THAT(why(with(toy(Family::llama), {{"sliding_window", 4}})),
              HasSubstr("sliding_window = 4: expected null: LlamaForCausalLM has no window"));
  EXPECT_EQ(windows(with(toy(Family::llama), {{"sliding_window", nullptr}})), (Windows{kFull, kFull, kFull}));
  const Json types{"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(why(with(toy(Family::llama), {{"layer_types", types}})), HasSubstr("expected full_attention only"));
}

}  // namespace
}  // namespace kvdiv::test
