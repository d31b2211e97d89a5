// Traits that single keys state, and what happens to every other key.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/config_support.h"

namespace kvdiv::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- other traits --------------------------------------------------------------------------------------------------

TEST(ConfigTraits, Activations) {
  for (const Family family : {Family::llama, Family::mistral}) {
    EXPECT_EQ(parse(with(toy(family), {{"hidden_act", "silu"}})).model.traits.activation, Activation::silu);
    EXPECT_EQ(parse(with(toy(family), {{"hidden_act", "swish"}})).model.traits.activation, Activation::silu);
    for (const Json& bad : {Json("gelu"), Json("relu"), Json("gelu_pytorch_tanh"), Json(nullptr), Json(1)})
      EXPECT_THAT(why(with(toy(family), {{"hidden_act", bad}})),
                  HasSubstr("config.json: hidden_act = " + bad.dump() + ": expected \"silu\""));
  }
  const Json gemma = toy(Family::gemma2);
  for (const Json& good :
       {Json{{"hidden_act", "gelu"}}, Json{{"hidden_act", "gelu_pytorch_tanh"}}, Json{{"hidden_activation", nullptr}},
        Json{{"hidden_act", "silu"}, {"hidden_activation", "gelu_pytorch_tanh"}}})
    EXPECT_EQ(parse(with(gemma, good)).model.traits.activation, Activation::gelu_tanh) << good;
  EXPECT_THAT(why(with(gemma, {{"hidden_activation", "gelu"}})),
              HasSubstr("hidden_activation = \"gelu\": expected \"gelu_pytorch_tanh\""));
  EXPECT_THAT(why(with(gemma, {{"hidden_act", "silu"}})), HasSubstr("hidden_act = \"silu\""));
}

TEST(ConfigTraits, Caps) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const auto cap = [&](const Json& value) {
      const Traits traits = parse(with(toy(Family::gemma2), {{key, value}})).model.traits;
      return key[0] == 'a' ? traits.attention_cap : traits.final_cap;
    };
    EXPECT_EQ(cap(nullptr), kFull);
    EXPECT_EQ(cap(2.5), 2.5);
    EXPECT_EQ(cap(50), 50.0);
    for (const Json& bad : {Json(0), Json(0.0), Json(-1.0), Json("50"), Json(false)})
      EXPECT_THAT(
          why(with(toy(Family::gemma2), {{key, bad}})),
          HasSubstr(std::string("config.json: ") + key + " = " + bad.dump() + ": expected a number above 0, or null"));
    EXPECT_THAT(why(with(toy(Family::llama), {{key, 50.0}})),
                HasSubstr("is a key of Gemma-2, not of LlamaForCausalLM"));
    EXPECT_EQ(why(with(toy(Family::llama), {{key, nullptr}})), "no error");
  }
}

TEST(ConfigTraits, QueryScale) {
  EXPECT_EQ(parse(with(toy(Family::gemma2), {{"query_pre_attn_scalar", 144}})).model.traits.query_scale,
            std::pow(144.0, -0.5));
  EXPECT_EQ(parse(with(toy(Family::gemma2), {{"query_pre_attn_scalar", 20.5}})).model.traits.query_scale,
            std::pow(20.5, -0.5));
  for (const Json& bad : {Json(0), Json(-256), Json(nullptr), Json("256")})
    EXPECT_THAT(why(with(toy(Family::gemma2), {{"query_pre_attn_scalar", bad}})),
                HasSubstr("query_pre_attn_scalar = " + bad.dump()));
  EXPECT_THAT(why(with(toy(Family::mistral), {{"query_pre_attn_scalar", 256}})),
              HasSubstr("query_pre_attn_scalar = 256"));
}

TEST(ConfigTraits, EmbeddingScaleIsTheRootOfTheWidth) {
  EXPECT_EQ(parse(with(toy(Family::gemma2), {{"hidden_size", 3072}})).model.traits.embedding_scale, std::sqrt(3072.0));
}

TEST(ConfigTraits, TheListHoldsTenFields) { EXPECT_EQ(field_keys<Traits>().size(), 10u); }

// ---- keys ----------------------------------------------------------------------------------------------------------

TEST(ConfigKeys, WhatChangesTheNumbersIsRefusedByNameAndValue) {
  const std::vector<std::pair<const char*, Json>> cases{
      {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"pretraining_tp", 2},
      {"use_bidirectional_attention", true},
      {"is_causal", false},
      {"partial_rotary_factor", 0.5},
      {"attention_multiplier", 0.1},
      {"logit_scale", 2.0},
      {"residual_multiplier", 0.2},
      {"embedding_multiplier", 12},
      {"num_local_experts", 8},
      {"use_qk_norm", true},
      {"rope_interleaved", true},
      {"attention_chunk_size", 8192},
      {"text_config", {{"a", 1}}},
      {"vision_config", {{"a", 1}}},
      {"use_sliding_window", true},
      {"rope_local_base_freq", 1e4},
      {"is_encoder_decoder", true},
      {"add_cross_attention", true},
      {"pruned_heads", {{"0", {1}}}},
      {"no_rope_layers", {1}},
      {"qkv_bias", true},
      {"num_experts_per_tok", 2}};
  std::set<std::string> messages;
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2})
    for (const auto& [key, value] : cases) {
      const std::string message = why(with(toy(family), {{key, value}}));
      EXPECT_THAT(message, HasSubstr(fmt::format("config.json: {} = {} ", key, value.dump())));
      messages.insert(message);
    }
  EXPECT_EQ(messages.size(), cases.size());
}

TEST(ConfigKeys, TheirNeutralValuesAreFine) {
  for (const Json& changes :
       {Json{{"attention_bias", false}}, Json{{"mlp_bias", nullptr}}, Json{{"pretraining_tp", 1}},
        Json{{"quantization_config", nullptr}}, Json{{"is_causal", true}}, Json{{"pruned_heads", Json::object()}},
        Json{{"attention_multiplier", 1.0}}, Json{{"rope_interleaved", false}}, Json{{"num_local_experts", 0}}})
    EXPECT_THAT(parse(with(toy(Family::llama), changes)).codes, IsEmpty()) << changes;
}

TEST(ConfigKeys, HarmlessKeysAreSilentAndUnknownOnesAreNamed) {
  const Json harmless{{"use_cache", false},
                      {"initializer_range", 0.02},
                      {"attention_dropout", 0.5},
                      {"cache_implementation", "hybrid"},
                      {"transformers_version", "5.24.0"},
                      {"auto_map", Json::object()},
                      {"temperature", 0.6},
                      {"new_key", nullptr}};
  EXPECT_THAT(parse(with(toy(Family::llama), harmless)).codes, IsEmpty());
  Warnings warnings;
  parse_model_config(with(toy(Family::llama), {{"frobnicate", 3}, {"twist", true}}), Json::object(), "config.json",
                     warnings);
  ASSERT_EQ(warnings.all().size(), 1u);
  EXPECT_EQ(warnings.all()[0].code, "unknown_config_keys");
  EXPECT_THAT(warnings.all()[0].message, HasSubstr("frobnicate, twist"));
}

TEST(ConfigKeys, AnyValueAtAnyKeyGivesAModelOrAnError) {
  const std::vector<Json> values{nullptr,
                                 true,
                                 false,
                                 0,
                                 1,
                                 -1,
                                 2.5,
                                 1e300,
                                 std::uint64_t{1} << 63,
                                 "",
                                 "x",
                                 Json::array(),
                                 Json::object(),
                                 Json{1, 2, 3},
                                 Json{nullptr, nullptr, nullptr},
                                 Json{{"a", {{"b", {1}}}}}};
  std::set<std::string> keys{"sliding_window", "layer_types",  "rope_parameters",
                             "rope_scaling",   "eos_token_id", "dtype"};
  const Json gemma = published("gemma-2-2b-transcribed/config.json");
  for (const auto& [key, value] : gemma.items()) keys.insert(key);
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2})
    for (const std::string& key : keys)
      for (const Json& value : values) {
        const std::string message = why(with(toy(family), {{key, value}}));
        if (message == "no error") continue;
        EXPECT_THAT(message, HasSubstr(key.substr(0, 8))) << key << " = " << value;
        EXPECT_LT(message.size(), 500u);
      }
}

}  // namespace
}  // namespace kvdiv::test
