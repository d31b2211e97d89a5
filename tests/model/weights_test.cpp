// From bytes to weights: casts counted, names compared, heads tied, alignments of no account.
#include "kvdiv/model/weights.h"

#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/model/memory.h"
#include "kvdiv/model/rotary.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

using testing::HasSubstr;

/// A copy of a golden checkpoint with tensors and config changed.
class Changed {
 public:
  explicit Changed(const std::string& model) : tensors(raw_tensors(golden_dir(model))), config(read_json_file(golden_dir(model) / "config.json")) {}
  const std::filesystem::path& write() {
    write_text_file_atomically(dir_.path() / "config.json", config.dump());
    write_safetensors(dir_.path() / "model.safetensors", tensors);
    return dir_.path();
  }
  RawTensor& tensor(const std::string& name) {
    for (RawTensor& t : tensors)
      if (t.name == name) return t;
    fail(ErrorKind::internal, "no tensor {}", name);
  }
  void remove(const std::string& name) { std::erase_if(tensors, [&](const RawTensor& t) { return t.name == name; }); }
  std::vector<RawTensor> tensors;
  Json config;

 private:
  TempDir dir_;
};

std::string refusal(const std::filesystem::path& dir) {
  try {
    load(dir, DType::float32);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    return error.what();
  }
  return "loaded";
}

std::string bf16_bytes(std::initializer_list<float> values) {
  std::string out;
  for (const float v : values) {
    const c10::BFloat16 b(v);
    out.append(reinterpret_cast<const char*>(&b), 2);
  }
  return out;
}

/// B30: BF16 → FP16. −4.2617e-6 changes, 1e-8 becomes 0, 70144 becomes infinite; both are counted and warned of.
TEST(Weights, CastsAreCounted) {
  Changed copy("tiny-gemma2");
  RawTensor& norm = copy.tensor("model.norm.weight");
  ASSERT_EQ(norm.dtype, "BF16");
  norm.bytes.replace(0, 8, bf16_bytes({-4.2617e-6f, 1e-8f, 70144.0f, 1.0f}));
  const auto& dir = copy.write();
  Warnings warnings;
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const ModelConfig config = config_of(dir);
  LoadedModel half = load_model(checkpoint, config, DType::float16, make_ops("torch", "eager"), warnings);
  EXPECT_EQ(half.cast.overflow, 1);
  EXPECT_GE(half.cast.flushed_to_zero, 1);
  ASSERT_GE(warnings.all().size(), 2u);
  EXPECT_EQ(warnings.all()[0].code, "cast_overflow");
  EXPECT_EQ(warnings.all()[1].code, "cast_flushed_to_zero");
  for (const NamedWeight& w : half.decoder.weights())
    if (w.name == "model.norm.weight") {
      const auto values = to_doubles(*w.tensor);
      EXPECT_NEAR(values[0], -4.2915e-6, 1e-10);
      EXPECT_EQ(values[1], 0.0);
      EXPECT_TRUE(std::isinf(values[2]));
      EXPECT_EQ(values[3], 1.0);
    }
  // FP32 comes from the original file, not from the FP16 copy.
  LoadedModel full = load_model(checkpoint, config, DType::float32, make_ops("torch", "eager"), warnings);
  EXPECT_EQ(full.cast.overflow + full.cast.flushed_to_zero, 0);
  for (const NamedWeight& w : full.decoder.weights())
    if (w.name == "model.norm.weight") {
      EXPECT_EQ(to_doubles(*w.tensor)[2], 70144.0);
    }
}

/// B63: absent though untied, present though tied, tied by default.
TEST(Weights, HeadsAreTiedByTheRule) {
  Changed absent("tiny-llama");
  absent.remove("lm_head.weight");
  EXPECT_THAT(refusal(absent.write()), HasSubstr("lm_head.weight"));
  absent.config["tie_word_embeddings"] = true;
  EXPECT_EQ(refusal(absent.write()), "loaded");

  for (const bool equal : {true, false}) {
    Changed present("tiny-llama");
    present.config["tie_word_embeddings"] = true;
    if (equal) present.tensor("lm_head.weight").bytes = present.tensor("model.embed_tokens.weight").bytes;
    const auto& dir = present.write();
    Warnings warnings;
    load_model(Checkpoint::open(dir), config_of(dir), DType::float32, make_ops("torch", "eager"), warnings);
    EXPECT_EQ(warnings.all().size(), equal ? 0u : 1u);
    if (!equal) {
      EXPECT_EQ(warnings.all()[0].code, "head_differs_from_embedding");
    }
  }
}

TEST(Weights, NamesAndShapesAreCompared) {
  Changed missing("tiny-llama");
  missing.remove("model.layers.1.mlp.up_proj.weight");
  EXPECT_THAT(refusal(missing.write()), HasSubstr("model.layers.1.mlp.up_proj.weight"));

  Changed extra("tiny-llama");
  extra.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {1}, std::string(4, '\0')});
  EXPECT_THAT(refusal(extra.write()), HasSubstr("q_proj.bias"));

  Changed inv_freq("tiny-llama");
  inv_freq.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, std::string(4, '\0')});
  EXPECT_EQ(refusal(inv_freq.write()), "loaded");

  Changed shape("tiny-llama");
  std::swap(shape.tensor("model.layers.0.mlp.up_proj.weight").shape[0], shape.tensor("model.layers.0.mlp.up_proj.weight").shape[1]);
  EXPECT_THAT(refusal(shape.write()), testing::AllOf(HasSubstr("up_proj"), HasSubstr("shape")));

  Changed empty("tiny-llama");
  empty.tensor("model.norm.weight").shape = {0};
  empty.tensor("model.norm.weight").bytes.clear();
  EXPECT_THAT(refusal(empty.write()), testing::AllOf(HasSubstr("model.norm.weight"), HasSubstr("[0]")));

  Changed quantized("tiny-llama");
  RawTensor& t = quantized.tensor("model.norm.weight");
  t.dtype = "I32";
  EXPECT_THAT(refusal(quantized.write()), testing::AllOf(HasSubstr("model.norm.weight"), HasSubstr("I32")));
}

/// B61, B35: a header of odd length puts every tensor at an odd address; the file may be gone when the weights are used.
TEST(Weights, DoNotDependOnAlignment) {
  const std::vector<TokenId> prompt{3, 17, 42, 8, 77};
  const LoadedModel original = load(golden_dir("tiny-llama"), DType::float32);
  const auto expected = to_doubles(original.decoder.forward(prompt, nullptr));
  Changed copy("tiny-llama");
  const std::filesystem::path dir = copy.write();
  const std::string text = read_text_file(dir / "model.safetensors");
  std::uint64_t n = 0;
  std::memcpy(&n, text.data(), 8);
  const std::uint64_t odd = n + (n % 2 == 0 ? 1 : 2);
  std::string moved(reinterpret_cast<const char*>(&odd), 8);
  moved += text.substr(8, n) + std::string(odd - n, ' ') + text.substr(8 + n);
  write_text_file_atomically(dir / "model.safetensors", moved);
  LoadedModel from_odd = load(dir, DType::float32);
  std::filesystem::remove(dir / "model.safetensors");
  EXPECT_EQ(to_doubles(from_odd.decoder.forward(prompt, nullptr)), expected);
  from_odd.decoder.realign_weights(24);
  EXPECT_EQ(to_doubles(from_odd.decoder.forward(prompt, nullptr)), expected) << "MKL_CBWR=AVX2,STRICT makes it so";
}

/// B28: √3072 is 55.5 in BF16 and 55.4375 in FP16; √48 of the 2B would hide the rounding.
TEST(EmbeddingScale, IsRoundedToTheComputeDtype) {
  class Embedding : public Tap {
   public:
    bool wants(Site s, std::int64_t) const override { return s == Site::embedding; }
    at::Tensor visit(Site, std::int64_t, const at::Tensor& t) override {
      first = t.flatten()[0].item().toDouble();
      return t;
    }
    double first = 0.0;
  };
  for (const auto& [dtype, expected] : {std::pair{DType::bfloat16, 55.5}, std::pair{DType::float16, 55.4375}, std::pair{DType::float64, std::sqrt(3072.0)}}) {
    Decoder decoder = load_changed(golden_dir("tiny-gemma2"), dtype, [](ModelConfig& c) { c.traits.embedding_scale = std::sqrt(3072.0); });
    for (const NamedWeight& w : decoder.weights())
      if (w.name == "model.embed_tokens.weight") *w.tensor = at::ones_like(*w.tensor);
    Embedding tap;
    decoder.forward(std::vector<TokenId>{1, 2}, nullptr, &tap);
    EXPECT_EQ(tap.first, expected) << name_of(dtype);
  }
}

/// B27: position 1857, feature 1 of 32, base 10000: an angle of 1044.27, which half precision would make 1044 or 1045.
TEST(Rotary, AnglesAreNotRoundedToHalf) {
  ModelConfig config = config_of(golden_dir("tiny-llama"));
  config.sizes.head_dim = 32;
  config.rope_theta = 10000.0;
  const double angle = 1857.0 * std::pow(10000.0, -2.0 / 32.0);
  for (const auto& [dtype, half_ulp] : {std::pair{DType::float16, 0x1p-12}, std::pair{DType::bfloat16, 0x1p-9}, std::pair{DType::float64, 1e-12}}) {
    const RotaryTable table = Rotary(config, dtype, RotaryTables::reference, c10::kCPU).at_positions(1857, 1);
    const double tolerance = half_ulp + (dtype == DType::float64 ? 0.0 : 1e-4);  // FP32 angles near 1044 are good to 6e-5
    EXPECT_NEAR(table.cos_11TD.flatten()[1].item().toDouble(), std::cos(angle), tolerance);
    EXPECT_NEAR(table.sin_11TD.flatten()[1].item().toDouble(), std::sin(angle), tolerance);
  }
}

TEST(Memory, CountsWhatARunHolds) {
  const ModelConfig config = config_of(golden_dir("tiny-gemma2"));
  const MemoryNeed half = memory_need(config, DType::float16, 100), full = memory_need(config, DType::float32, 100);
  EXPECT_EQ(half.weights, 2 * static_cast<std::uint64_t>(config.n_params()));
  EXPECT_EQ(full.weights, 2 * half.weights);
  EXPECT_EQ(full.cache, 2 * half.cache);
  EXPECT_GT(memory_need(config, DType::float16, 1000).activations, 50 * half.activations) << "scores grow with the square";
  EXPECT_GT(available_memory_bytes(), std::uint64_t{64} << 20);
  EXPECT_NO_THROW(require_memory(config, DType::float16, 100));
  ModelConfig huge = config;
  huge.sizes.n_layers = 100'000'000;
  try {
    require_memory(huge, DType::float16, 100);
    ADD_FAILURE() << "a run of petabytes was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("bytes"), HasSubstr("available")));
  }
}

}  // namespace
}  // namespace kvdiv::test
