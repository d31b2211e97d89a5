// config.json in every spelling that was published, and in the wrong ones. What is right was measured with the
// reference (transformers 5.24); the comments "reference: …" say what it does where kvdiv is stricter.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "model/config_support.h"

namespace kvdiv::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- published files -----------------------------------------------------------------------------------------------

TEST(PublishedConfig, Llama2) {
  const Parsed parsed =
      parse(published("llama-2-7b-chat-hf/config.json"), published("llama-2-7b-chat-hf/generation_config.json"));
  const ModelConfig& model = parsed.model;
  EXPECT_THAT(parsed.codes, IsEmpty());
  EXPECT_EQ(model.architecture, "LlamaForCausalLM");
  EXPECT_EQ(model.sizes.head_dim, 128);
  EXPECT_EQ(model.sizes.n_kv_heads, 32);
  EXPECT_EQ(model.rope_theta, 10000.0);
  EXPECT_EQ(model.rms_norm_eps, 1e-5);
  EXPECT_THAT(model.eos_ids, ElementsAre(2));
  EXPECT_EQ(model.bos_id, 1);
  EXPECT_EQ(model.declared_dtype, "float16");
  EXPECT_EQ(model.traits.windows, Windows(32, kFull));
  EXPECT_EQ(model.traits.query_scale, std::pow(128.0, -0.5));
  EXPECT_FALSE(model.traits.tied_head);
  // 323 names in F16, 32 of them inv_freq, which is F32 of 64 entries.
  EXPECT_EQ(model.n_params() * 2 + 32 * 64 * 4, 13'476'839'424);
}

TEST(PublishedConfig, Llama2WithoutKvHeadsAndTheta) {
  const ModelConfig model = parse(published("llama-2-7b-finetune-fp32/config.json")).model;
  EXPECT_EQ(model.sizes.n_kv_heads, 32);
  EXPECT_EQ(model.rope_theta, 10000.0);
  EXPECT_EQ(model.sizes.max_positions, 2048);
  EXPECT_EQ(model.n_params() * 4 + 32 * 64 * 4, 26'953'670'656);
}

TEST(PublishedConfig, Mistral) {
  const Parsed parsed = parse(published("mistral-7b-instruct-v0.3/config.json"));
  EXPECT_THAT(parsed.codes, IsEmpty());
  EXPECT_EQ(parsed.model.architecture, "MistralForCausalLM");
  EXPECT_EQ(parsed.model.sizes.head_dim, 128);
  EXPECT_EQ(parsed.model.sizes.n_kv_heads, 8);
  EXPECT_EQ(parsed.model.sizes.max_positions, 32768);
  EXPECT_EQ(parsed.model.rope_theta, 1e6);
  EXPECT_EQ(parsed.model.traits.windows, Windows(32, kFull));
  EXPECT_EQ(parsed.model.n_params() * 2, 14'496'047'104);
}

TEST(PublishedConfig, Gemma2) {
  const Parsed parsed = parse(published("gemma-2-2b-transcribed/config.json"));
  const ModelConfig& model = parsed.model;
  EXPECT_THAT(parsed.codes, IsEmpty());
  EXPECT_EQ(model.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(model.n_params(), 2'614'341'888);
  EXPECT_EQ(model.sizes.head_dim, 256);
  EXPECT_EQ(model.traits.query_scale, 1.0 / 16);
  EXPECT_EQ(model.traits.embedding_scale, 48.0);
  EXPECT_EQ(model.traits.norm_offset, 1.0);
  EXPECT_EQ(model.traits.norm_cast, NormCast::after_weight);
  EXPECT_EQ(model.traits.activation, Activation::gelu_tanh);
  EXPECT_TRUE(model.traits.sandwich_norms);
  EXPECT_TRUE(model.traits.tied_head);
  EXPECT_EQ(model.traits.attention_cap, 50.0);
  EXPECT_EQ(model.traits.final_cap, 30.0);
  ASSERT_EQ(model.traits.windows.size(), 26u);
  for (std::size_t i = 0; i < 26; ++i)
    EXPECT_EQ(model.traits.windows[i], i % 2 == 0 ? std::optional<std::int64_t>(4096) : kFull) << i;
}

TEST(PublishedConfig, Gemma1IsRefusedByName) {
  EXPECT_THAT(
      why(published("gemma-1-2b-it/config.json")),
      AllOf(HasSubstr("Gemma-1 is not supported"), HasSubstr("GemmaForCausalLM"), HasSubstr("Gemma2ForCausalLM")));
}

TEST(PublishedConfig, TheToysAndGoldensParse) {
  namespace fs = std::filesystem;
  int n = 0;
  for (const char* folder : {"data/models", "tests/golden"})
    for (const auto& dir : fs::directory_iterator(fs::path(KVDIV_TEST_ROOT) / folder)) {
      std::ifstream in(dir.path() / "config.json");
      if (!in) continue;
      EXPECT_EQ(why(Json::parse(in)), "no error") << dir.path();
      ++n;
    }
  EXPECT_GE(n, 1);
}

// ---- class defaults ------------------------------------------------------------------------------------------------

TEST(ConfigDefaults, AreThoseOfTheReferenceClasses) {
  const ModelConfig llama = parse(toy(Family::llama)).model;
  EXPECT_EQ(llama.sizes.max_positions, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_FALSE(llama.traits.tied_head);
  EXPECT_THAT(llama.eos_ids, ElementsAre(2));
  EXPECT_EQ(llama.bos_id, 1);
  EXPECT_EQ(llama.declared_dtype, "");
  EXPECT_EQ(llama.traits.activation, Activation::silu);
  EXPECT_EQ(llama.traits.norm_offset, 0.0);
  EXPECT_EQ(llama.traits.norm_cast, NormCast::before_weight);
  EXPECT_EQ(llama.traits.embedding_scale, kFull);
  EXPECT_EQ(llama.traits.attention_cap, kFull);
  EXPECT_FALSE(llama.traits.sandwich_norms);
  const ModelConfig mistral = parse(toy(Family::mistral)).model;
  EXPECT_EQ(mistral.sizes.max_positions, 131072);
  EXPECT_FALSE(mistral.traits.tied_head);
  const ModelConfig gemma = parse(toy(Family::gemma2)).model;
  EXPECT_EQ(gemma.sizes.max_positions, 8192);
  EXPECT_TRUE(gemma.traits.tied_head);
  EXPECT_THAT(gemma.eos_ids, ElementsAre(1));
  EXPECT_EQ(gemma.bos_id, 2);
  EXPECT_EQ(gemma.traits.query_scale, 1.0 / 16);
  EXPECT_EQ(gemma.traits.attention_cap, 50.0);
  EXPECT_EQ(gemma.traits.final_cap, 30.0);
}

TEST(ConfigDefaults, TyingIsAnExplicitBoolean) {
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2})
    for (const bool tied : {true, false})
      EXPECT_EQ(parse(with(toy(family), {{"tie_word_embeddings", tied}})).model.traits.tied_head, tied);
  EXPECT_THAT(why(with(toy(Family::llama), {{"tie_word_embeddings", nullptr}})),
              HasSubstr("config.json: tie_word_embeddings = null: expected true or false"));
}

TEST(ConfigDefaults, KeyValueHeads) {
  const auto kv = [](const Json& config) { return parse(config).model.sizes.n_kv_heads; };
  EXPECT_EQ(kv(without(toy(Family::llama), "num_key_value_heads")), 4);
  EXPECT_EQ(kv(with(toy(Family::llama), {{"num_key_value_heads", nullptr}})), 4);
  EXPECT_EQ(kv(without(with(toy(Family::mistral), {{"num_attention_heads", 16}}), "num_key_value_heads")), 8);
  EXPECT_EQ(kv(with(toy(Family::mistral), {{"num_key_value_heads", nullptr}})), 4);
  EXPECT_EQ(kv(without(toy(Family::gemma2), "num_key_value_heads")), 4);
  EXPECT_THAT(why(with(toy(Family::gemma2), {{"num_key_value_heads", nullptr}})),
              HasSubstr("num_key_value_heads = null"));
  EXPECT_THAT(
      why(without(toy(Family::mistral), "num_key_value_heads")),
      HasSubstr("num_key_value_heads = 8 (absent: the class default): expected a divisor of num_attention_heads, 4"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"num_key_value_heads", 3}})),
              HasSubstr("num_key_value_heads = 3: expected a divisor of num_attention_heads, 4"));
}

TEST(ConfigDefaults, HeadDim) {
  const auto head_dim = [](const Json& config) { return parse(config).model.sizes.head_dim; };
  for (const Family family : {Family::llama, Family::mistral}) {
    EXPECT_EQ(head_dim(with(toy(family), {{"head_dim", 16}})), 16);
    EXPECT_EQ(head_dim(without(toy(family), "head_dim")), 12);
    EXPECT_EQ(head_dim(with(toy(family), {{"head_dim", nullptr}})), 12);
    EXPECT_THAT(why(without(with(toy(family), {{"hidden_size", 50}}), "head_dim")),
                HasSubstr("hidden_size 50 is not a multiple of num_attention_heads 4, and head_dim is not given"));
    EXPECT_EQ(parse(with(toy(family), {{"head_dim", 16}})).model.traits.query_scale, 0.25);
  }
  EXPECT_EQ(head_dim(without(toy(Family::gemma2), "head_dim")), 256);  // never hidden / heads
  EXPECT_THAT(why(with(toy(Family::gemma2), {{"head_dim", nullptr}})), HasSubstr("head_dim = null"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"head_dim", 7}})), HasSubstr("head_dim = 7: expected an even number"));
  EXPECT_THAT(why(without(with(toy(Family::llama), {{"hidden_size", 20}}), "head_dim")),
              HasSubstr("head_dim = 5: expected an even number"));
}

TEST(ConfigDefaults, SizesAreStatedPositiveAndSane) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    EXPECT_EQ(why(without(toy(Family::llama), key)), std::string("config.json: ") + key + " is missing");
    for (const Json& bad : {Json(0), Json(-1), Json(2.0), Json("2"), Json(nullptr), Json(true),
                            Json(std::uint64_t{1} << 63), Json(1'000'000'000), Json::array({2})})
      EXPECT_THAT(
          why(with(toy(Family::llama), {{key, bad}})),
          HasSubstr(std::string("config.json: ") + key + " = " + bad.dump() + ": expected an integer from 1 to"));
  }
  EXPECT_THAT(why(with(toy(Family::llama), {{"max_position_embeddings", 0}})),
              HasSubstr("max_position_embeddings = 0"));
}

TEST(ConfigDefaults, ParametersOfTheLargestSizesDoNotOverflow) {
  const Json huge = with(toy(Family::gemma2), {{"hidden_size", 1'000'000},
                                               {"intermediate_size", 10'000'000},
                                               {"num_hidden_layers", 10'000},
                                               {"num_attention_heads", 10'000},
                                               {"num_key_value_heads", 10'000},
                                               {"head_dim", 10'000},
                                               {"vocab_size", 100'000'000},
                                               {"tie_word_embeddings", false}});
  EXPECT_EQ(parse(huge).model.n_params(), 4'300'200'040'001'000'000);
}

TEST(ConfigDefaults, NormEpsilon) {
  EXPECT_EQ(parse(with(toy(Family::llama), {{"rms_norm_eps", 1e-3}})).model.rms_norm_eps, 1e-3);
  EXPECT_EQ(parse(with(toy(Family::llama), {{"rms_norm_eps", 0.0}})).model.rms_norm_eps, 0.0);
  EXPECT_THAT(why(with(toy(Family::llama), {{"rms_norm_eps", -1e-6}})), HasSubstr("rms_norm_eps = -1e-06"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"rms_norm_eps", nullptr}})), HasSubstr("rms_norm_eps = null"));
}

// ---- architecture --------------------------------------------------------------------------------------------------

TEST(ConfigArchitecture, ComesFromTheListOrElseTheModelType) {
  EXPECT_EQ(parse(without(toy(Family::gemma2), "architectures")).model.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(parse(with(toy(Family::gemma2), {{"architectures", nullptr}})).model.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(parse(with(toy(Family::mistral), {{"architectures", Json::array()}})).model.architecture,
            "MistralForCausalLM");
  EXPECT_EQ(parse(without(toy(Family::llama), "model_type")).model.architecture, "LlamaForCausalLM");
  EXPECT_THAT(why(without(without(toy(Family::llama), "model_type"), "architectures")),
              HasSubstr("neither architectures nor model_type"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"model_type", "mistral"}})),
              HasSubstr("model_type = \"mistral\": expected \"llama\", as architectures says LlamaForCausalLM"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"architectures", {"Qwen2ForCausalLM"}}, {"model_type", "qwen2"}})),
              AllOf(HasSubstr("architectures = Qwen2ForCausalLM: not supported"),
                    HasSubstr("LlamaForCausalLM, MistralForCausalLM, Gemma2ForCausalLM")));
  EXPECT_THAT(why({{"model_type", "gemma"}}), HasSubstr("model_type = gemma: Gemma-1 is not supported"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"architectures", "LlamaForCausalLM"}})),
              HasSubstr("expected a list of texts"));
  EXPECT_THAT(why(with(toy(Family::llama), {{"architectures", {7}}})), HasSubstr("expected a list of texts"));
  EXPECT_THAT(why(Json::array()), HasSubstr("expected an object, found []"));
}

// ---- tokens --------------------------------------------------------------------------------------------------------

TEST(ConfigTokens, EosIsANumberAListOrNothing) {
  const auto eos = [](const Json& config, const Json& generation = Json::object()) {
    return parse(with(toy(Family::gemma2), config), generation).model.eos_ids;
  };
  EXPECT_THAT(eos({{"eos_token_id", 7}}), ElementsAre(7));
  EXPECT_THAT(eos({{"eos_token_id", {1, 106}}}), ElementsAre(1, 106));
  EXPECT_THAT(eos({{"eos_token_id", {1, 106, 1}}}), ElementsAre(1, 106));
  EXPECT_THAT(eos({{"eos_token_id", nullptr}}), IsEmpty());
  EXPECT_THAT(eos({{"eos_token_id", Json::array()}}), IsEmpty());
  EXPECT_THAT(eos({{"eos_token_id", 1}}, {{"eos_token_id", {1, 107}}}), ElementsAre(1, 107));
  EXPECT_THAT(eos({{"eos_token_id", 5}}, {{"eos_token_id", nullptr}}), ElementsAre(5));
  EXPECT_THAT(eos({{"eos_token_id", 5}}, {{"temperature", 0.6}}), ElementsAre(5));
}

TEST(ConfigTokens, IdsOutsideTheVocabularyAreRefused) {
  for (const Json& bad : {Json(300), Json(-1), Json("2"), Json(2.0), Json(true), Json{2, 300}, Json{2, nullptr}}) {
    EXPECT_THAT(why(with(toy(Family::llama), {{"eos_token_id", bad}})),
                AllOf(HasSubstr("config.json: eos_token_id = "), HasSubstr("expected a token id from 0 to 299")))
        << bad;
    EXPECT_THAT(why(toy(Family::llama), {{"eos_token_id", bad}}), HasSubstr("generation_config.json: eos_token_id = "))
        << bad;
  }
  EXPECT_THAT(why(with(toy(Family::llama), {{"bos_token_id", 300}})), HasSubstr("bos_token_id = 300"));
  EXPECT_EQ(parse(with(toy(Family::llama), {{"bos_token_id", nullptr}})).model.bos_id, kFull);
  EXPECT_EQ(parse(with(toy(Family::llama), {{"bos_token_id", 3}})).model.bos_id, 3);
  EXPECT_EQ(why(with(toy(Family::llama), {{"pad_token_id", -1}})), "no error");
}

TEST(ConfigTokens, DtypeIsOnlyReported) {
  const auto dtype = [](const Json& changes) { return parse(with(toy(Family::llama), changes)).model.declared_dtype; };
  EXPECT_EQ(dtype({{"torch_dtype", "bfloat16"}}), "bfloat16");
  EXPECT_EQ(dtype({{"dtype", "float16"}}), "float16");
  EXPECT_EQ(dtype({{"torch_dtype", "torch.float16"}}), "torch.float16");
  EXPECT_EQ(dtype({{"dtype", "float16"}, {"torch_dtype", "bfloat16"}}), "float16 (torch_dtype: bfloat16)");
  EXPECT_EQ(dtype({{"dtype", "float16"}, {"torch_dtype", "float16"}}), "float16");
  EXPECT_EQ(dtype({{"torch_dtype", nullptr}}), "");
  EXPECT_EQ(dtype({{"dtype", "auto"}}), "auto");
}

}  // namespace
}  // namespace kvdiv::test
