// config.json as an enemy would write it: what is said stays short, what is kept stays in proportion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/config_support.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

TEST(HostileConfig, AWarningOfManyUnknownKeysIsShort) {
  Json config = toy(Family::llama);
  for (int i = 0; i < 5'000; ++i) config["key_" + std::to_string(i)] = 1;
  config["\x1b[2J"] = 1;
  Warnings warnings;
  parse_model_config(config, Json::object(), "config.json", warnings);
  ASSERT_EQ(warnings.all().size(), 1u);
  EXPECT_THAT(warnings.all()[0].message, AllOf(HasSubstr("key_0, key_1"), HasSubstr("key_7 and 4993 more")));
  EXPECT_LT(warnings.all()[0].message.size(), 300u);
}

TEST(HostileConfig, KeysAndValuesInMessagesAreShortAndEscaped) {
  const std::string junk = "\x1b[2J\n" + std::string(100'000, 'x');
  for (const Json& changes :
       {Json{{"architectures", {junk}}}, Json{{"model_type", junk}}, Json{{"hidden_act", junk}}, Json{{"hidden_size", junk}},
        Json{{"rope_scaling", {{junk, 1}}}}, Json{{"rope_parameters", {{junk, {{"rope_theta", 1e4}}}}}},
        Json{{"layer_types", {junk, junk, junk}}}, Json{{"sliding_window", junk}}, Json{{"eos_token_id", {junk}}},
        Json{{"attention_bias", junk}}, Json{{"tie_word_embeddings", junk}}, Json{{"rms_norm_eps", junk}}}) {
    const std::string message = why(with(toy(Family::mistral), changes));
    EXPECT_NE(message, "no error") << changes.begin().key();
    EXPECT_LT(message.size(), 1'000u) << changes.begin().key();
    EXPECT_THAT(message, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")))) << changes.begin().key();
  }
}

/// Only reported, but that is where a terminal is.
TEST(HostileConfig, TheDeclaredDtypeIsShortAndEscaped) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string dtype = parse(with(toy(Family::llama), {{key, "\x1b[2J\n" + std::string(100'000, 'x')}})).model.declared_dtype;
    EXPECT_LT(dtype.size(), 500u);
    EXPECT_THAT(dtype, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n"))));
  }
}

TEST(HostileConfig, NumbersAtTheEndsOfTheirRangesGiveAModelOrAnError) {
  for (const char* key : {"rope_theta", "rms_norm_eps", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"})
    for (const double value : {5e-324, 1e-300, 1e300, 1.7976931348623157e308}) {
      const ModelConfig model = parse(with(toy(Family::gemma2), {{key, value}})).model;
      EXPECT_THAT((std::vector<double>{model.traits.query_scale, model.rope_theta, *model.traits.attention_cap}), Each(testing::Gt(0.0)))
          << key << " = " << value;
    }
}

}  // namespace
}  // namespace kvdiv::test
