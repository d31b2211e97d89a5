// Config and weights that do not belong together, or that no machine could hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fuzz/wanted_weights.h"
#include "kvdiv/model/cache.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/model/weights.h"
#include "model/config_support.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    const std::string message = error.what();
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
    EXPECT_LT(message.size(), 1500u) << message;
    return message;
  }
  return "no error";
}

/// The message about a folder with this config and these tensors.
std::string refusal(const Json& config, const std::vector<RawTensor>& tensors) {
  const TempDir dir;
  write_text_file_atomically(dir.path() / "config.json", config.dump());
  write_safetensors(dir.path() / "model.safetensors", tensors);
  return message_of([&] { check_checkpoint(Checkpoint::open(dir.path()), config_of(dir.path())); });
}

Json golden_config(const std::string& model) { return read_json_file(golden_dir(model) / "config.json"); }

/// The largest sizes that a config may name.
Json largest(Family family) {
  return with(toy(family), {{"hidden_size", 1'000'000},
                            {"intermediate_size", 10'000'000},
                            {"num_hidden_layers", 10'000},
                            {"num_attention_heads", 10'000},
                            {"num_key_value_heads", 10'000},
                            {"vocab_size", 100'000'000},
                            {"head_dim", 10'000},
                            {"max_position_embeddings", std::int64_t{1} << 40}});
}

/// The fuzzed pair of config and header needs the list of names without libtorch: it must be the decoder's.
TEST(HostileWeights, TheListThatIsFuzzedIsTheDecoders) {
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2})
    for (const bool tied : {false, true})
      for (const int head_dim : {12, 16}) {
        const ModelConfig config =
            parse(with(toy(family), {{"tie_word_embeddings", tied}, {"head_dim", head_dim}, {"num_hidden_layers", 2}})).model;
        std::map<std::string, std::vector<std::int64_t>> published, decoder;
        for (const WantedWeight& w : published_weights(config)) published[w.name] = w.shape;
        for (const NamedWeight& w : Decoder(config, DType::float32, make_ops("torch", "eager")).weights())
          decoder[w.name] = w.shape;
        EXPECT_EQ(published, decoder) << config.architecture;
        std::int64_t n = 0;
        for (const auto& [name, shape] : decoder) n += shape.size() == 2 ? shape[0] * shape[1] : shape[0];
        EXPECT_EQ(n, config.n_params()) << config.architecture;
        // B70: hidden 48, 4 heads, head_dim 16.
        EXPECT_EQ(decoder.at("model.layers.0.self_attn.q_proj.weight"), (std::vector<std::int64_t>{4 * head_dim, 48}));
      }
}

/// B55: a file of metadata alone is well formed, and has no weights.
TEST(HostileWeights, AFileWithoutTensorsLacksTheEmbedding) {
  EXPECT_THAT(refusal(golden_config("tiny-llama"), {}),
              AllOf(HasSubstr("missing tensor "), HasSubstr("model.embed_tokens.weight"), HasSubstr(" more")));
}

/// B63: without the key, Gemma-2 ties its head, LLaMA and Mistral do not.
TEST(HostileWeights, AnAbsentTieIsTheClassDefault) {
  for (const std::string& model : golden_models()) {
    std::vector<RawTensor> tensors = raw_tensors(golden_dir(model));
    std::erase_if(tensors, [](const RawTensor& t) { return t.name == "lm_head.weight"; });
    const std::string message = refusal(without(golden_config(model), "tie_word_embeddings"), tensors);
    if (model == "tiny-gemma2")
      EXPECT_EQ(message, "no error");
    else
      EXPECT_THAT(message, AllOf(HasSubstr("no tensor 'lm_head.weight'"), HasSubstr("\"tie_word_embeddings\": true"))) << model;
  }
}

TEST(HostileWeights, ShapesThatMultiplyToTheSameAreNotTheSame) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {0}, {0, std::int64_t{1} << 62}, {1, 48}, {48, 1}}) {
    std::vector<RawTensor> tensors = raw_tensors(golden_dir("tiny-llama"));
    for (RawTensor& t : tensors) {
      if (t.name != "model.norm.weight") continue;
      std::size_t n_bytes = t.dtype == "F32" ? 4 : 2;
      for (const std::int64_t d : shape) n_bytes *= static_cast<std::size_t>(d);
      t.shape = shape;
      t.bytes = std::string(n_bytes, '\0');
    }
    EXPECT_THAT(refusal(golden_config("tiny-llama"), tensors), AllOf(HasSubstr("tensor 'model.norm.weight': shape ["), HasSubstr("by config.json")))
        << shape.size();
  }
}

TEST(HostileWeights, NamesInMessagesAreShortAndEscaped) {
  std::vector<RawTensor> tensors = raw_tensors(golden_dir("tiny-llama"));
  for (const char* name : {"\x1b[2J", "a\nb", "", "\t"}) tensors.push_back({name + std::string(100'000, 'x'), "U8", {0}, ""});
  const std::string message = refusal(golden_config("tiny-llama"), tensors);
  EXPECT_THAT(message, AllOf(HasSubstr("4 tensors that LlamaForCausalLM does not have"), Not(HasSubstr("\x1b"))));
  std::vector<std::int64_t> many(100'000, 1);
  std::vector<RawTensor> flat = raw_tensors(golden_dir("tiny-llama"));
  for (RawTensor& t : flat)
    if (t.name == "model.norm.weight") many[0] = t.shape[0], t.shape = many;
  EXPECT_THAT(refusal(golden_config("tiny-llama"), flat), HasSubstr("model.norm.weight': shape ["));
}

TEST(HostileWeights, AQuantizedTensorNamesItsFolder) {
  std::vector<RawTensor> tensors = raw_tensors(golden_dir("tiny-llama"));
  for (RawTensor& t : tensors)
    if (t.name == "model.norm.weight") t.dtype = t.dtype == "F32" ? "I32" : "I16";
  EXPECT_THAT(refusal(golden_config("tiny-llama"), tensors), AllOf(HasSubstr("kvdiv-"), HasSubstr(": tensor 'model.norm.weight': stored as I")));
}

/// Sizes whose products no 64 bits can count must look too large, not small.
TEST(HostileWeights, MemoryDoesNotWrapAround) {
  for (const Family family : {Family::llama, Family::mistral, Family::gemma2}) {
    const ModelConfig config = parse(largest(family)).model;
    EXPECT_GT(config.n_params(), 0);
    EXPECT_EQ(weight_bytes(config, DType::float64), kTooMany);
    EXPECT_EQ(cache_bytes(config, DType::float16, config.sizes.max_positions), kTooMany);
    EXPECT_EQ(KvCache::n_bytes(config, DType::float16, config.sizes.max_positions), kTooMany);
    EXPECT_EQ(memory_need(config, DType::float64, 1).total(), kTooMany);
    EXPECT_THAT(message_of([&] { require_memory(config, DType::float16, 100); }), HasSubstr("this run needs"));
  }
  // Two 32nd powers of two: the square of the length alone wraps to nothing.
  const ModelConfig small = parse(with(toy(Family::llama), {{"max_position_embeddings", std::int64_t{1} << 40}})).model;
  EXPECT_EQ(memory_need(small, DType::float16, std::int64_t{1} << 32).activations, kTooMany);
  EXPECT_THAT(message_of([&] { require_memory(small, DType::float16, std::int64_t{1} << 32); }), HasSubstr("this run needs"));
  EXPECT_EQ(memory_need(small, DType::float16, 0).cache, 0u);
  EXPECT_EQ(memory_need(small, DType::float16, -1).total(), kTooMany) << "a length that overflowed";
}

/// Ten thousand layers in a config of a few bytes, beside a file of a few tensors.
TEST(HostileWeights, ManyLayersWithoutWeightsAreRefusedInTime) {
  const Json config = with(golden_config("tiny-llama"), {{"num_hidden_layers", 10'000}});
  EXPECT_THAT(refusal(config, raw_tensors(golden_dir("tiny-llama"))), HasSubstr("missing tensor model.layers."));
}

}  // namespace
}  // namespace kvdiv::test
