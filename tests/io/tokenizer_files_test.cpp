// Which files and settings make a tokenizer, and which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kvdiv/io/sentencepiece_model.h"
#include "tokenizer_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- BOS (B77) -----------------------------------------------------------------------------------------------------

TEST(Bos, IsThereExactlyOnceUnlessTheConfigSaysNo) {
  for (const fs::path& model : {kLlama, kGemmaLike}) {
    ModelDir dir;
    dir.model(model);
    const auto n_bos = [&](const std::string& text) {
      const Tokenizer tokenizer = open_tokenizer(dir.path());
      const Ids ids = tokenizer.encode(text);
      return std::count(ids.begin(), ids.end(), tokenizer.bos_id().value());
    };
    const std::vector<std::string> texts{"x", "", "<bos>", "<s>", "<s> x", "<bos><bos>", "\n<s>"};
    for (const auto& text : texts) EXPECT_EQ(n_bos(text), 1) << text;
    for (const char* config : {"{}", R"({"add_bos_token": true})", R"({"add_bos_token": null})"}) {
      dir.config(config);
      for (const auto& text : texts) EXPECT_EQ(n_bos(text), 1) << config << text;
    }
    dir.config(R"({"add_bos_token": false})");
    for (const auto& text : texts) EXPECT_EQ(n_bos(text), 0) << text;
    EXPECT_FALSE(open_tokenizer(dir.path()).adds_bos());
  }
}

TEST(Bos, LegacyAndAddEosChangeNothing) {
  ModelDir dir;
  dir.model(kLlama);
  for (const char* config : {R"({"legacy": true})", R"({"legacy": false})", R"({"add_eos_token": true})"}) {
    dir.config(config);
    EXPECT_THAT(open_tokenizer(dir.path()).encode("</s>Human is Here"),
                ElementsAre(1, 1533, 29879, 29958, 29950, 7889, 338, 2266));
    EXPECT_THAT(open_tokenizer(dir.path()).encode("Human is Here"), ElementsAre(1, 12968, 338, 2266));
  }
}

TEST(Bos, TheConfigMayNameIt) {
  ModelDir dir;
  dir.model(kGemmaLike).config(R"({"bos_token": {"content": "<eos>", "lstrip": false}})");
  EXPECT_EQ(open_tokenizer(dir.path()).encode("").front(), 1);
  dir.config(R"({"bos_token": "<bos>"})");
  EXPECT_EQ(open_tokenizer(dir.path()).encode("").front(), 2);
  dir.config(R"({"bos_token": null})");
  EXPECT_EQ(open_tokenizer(dir.path()).encode("").front(), 2);
  dir.config(R"({"bos_token": "<start>"})");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("'<start>'"));
  dir.config(R"({"bos_token": "<start>", "add_bos_token": false})");
  EXPECT_TRUE(open_tokenizer(dir.path()).encode("").empty());
}

TEST(Config, WrongTypesAndBrokenJsonAreNamed) {
  ModelDir dir;
  dir.model(kGemmaLike);
  dir.config(R"({"add_bos_token": "yes"})");
  EXPECT_THAT(tokenizer_refusal(dir.path()),
              testing::AllOf(HasSubstr("tokenizer_config.json: key add_bos_token"), HasSubstr("\"yes\"")));
  dir.config(R"({"bos_token": 1})");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("key bos_token"));
  dir.config("[]");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("expected an object"));
  dir.config("{");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("tokenizer_config.json"));
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(Open, NoModelFileIsNoTokenizer) {
  ModelDir dir;
  EXPECT_FALSE(Tokenizer::open(dir.path()).has_value());
  dir.write("tokenizer.json", "{}").config("{}");
  EXPECT_FALSE(Tokenizer::open(dir.path()).has_value());
  EXPECT_FALSE(Tokenizer::open(dir.path() / "absent").has_value());
}

TEST(Open, PrefersTheFileWithoutSuffix) {
  ModelDir dir;
  dir.write("tokenizer.model.v3", read_text_file(kMistral / "tokenizer.model.v3"));
  EXPECT_EQ(open_tokenizer(dir.path()).vocab_size(), 32768);
  dir.model(kGemmaLike);
  EXPECT_EQ(open_tokenizer(dir.path()).vocab_size(), 900);
}

TEST(Open, BrokenFilesAreNamedAndNothingIsPrinted) {
  const std::string good = read_text_file(kGemmaLike / "tokenizer.model");
  std::vector<std::string> broken{"",
                                  "x",
                                  "\n",
                                  std::string(1000, '\0'),
                                  "{\"model\": 1}",
                                  good + "x",
                                  good + good.substr(0, 5),
                                  std::string(12, '\xff'),
                                  "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                  "\x0f"};
  for (std::size_t n = 1; n < good.size(); n += 97) broken.push_back(good.substr(0, n));
  ModelDir dir;
  for (const auto& bytes : broken) {
    dir.write("tokenizer.model", bytes);
    EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("tokenizer.model: ")) << bytes.size();
  }
}

TEST(Open, AFileCutBetweenTwoPiecesIsIncomplete) {
  // One piece {piece "a", score 0}: a well-formed message without settings.
  ModelDir dir;
  dir.write("tokenizer.model",
            "\x0a\x08\x0a\x01"
            "a\x15\x00\x00\x00\x00"s);
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("found 1 pieces, no trainer and no normalizer settings"));
}

TEST(Open, PointersAndPagesAreRecognised) {
  ModelDir dir;
  dir.write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 499723\n");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("Git-LFS pointer"));
  dir.write("tokenizer.model", "<!DOCTYPE html><html></html>");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("HTML"));
}

TEST(Open, ADanglingLinkIsAnErrorAndNotAModelWithoutTokenizer) {
  ModelDir dir;
  fs::create_symlink("/nonexistent/blob", dir.path() / "tokenizer.model");
  EXPECT_THAT(tokenizer_refusal(dir.path()), HasSubstr("tokenizer.model"));
}

TEST(Open, FlippedBytesNeverCrash) {
  const std::string good = read_text_file(kGemmaLike / "tokenizer.model");
  ModelDir dir;
  std::size_t n_open = 0;
  for (std::size_t i = 0; i < good.size(); i += 61) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ static_cast<char>(1u << (i % 8)));
    dir.write("tokenizer.model", bytes);
    try {
      const auto tokenizer = Tokenizer::open(dir.path());
      tokenizer->decode(tokenizer->encode("Natalia sold 48/2 = 24 clips.\n"));
      ++n_open;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    }
  }
  EXPECT_GT(n_open, 0u);
}

TEST(Open, ATokenizerCanBeMoved) {
  Tokenizer a = open_tokenizer(kStories);
  Tokenizer b = std::move(a);
  a = open_tokenizer(kGemmaLike);
  EXPECT_EQ(b.vocab_size(), 512);
  EXPECT_EQ(a.vocab_size(), 900);
}

// Models that normalise (NFKC, extra white space) and have no byte tokens lose what they lose; they must not fail.
TEST(OtherModels, NormalisingModelsWork) {
  for (const char* name : {"test_model.model", "test_ja_model.model"}) {
    ModelDir dir;
    dir.write("tokenizer.model", read_text_file(kCorpus / "sentencepiece-tests" / name));
    const Tokenizer tokenizer = open_tokenizer(dir.path());
    const Ids ids = tokenizer.encode("I saw a girl");
    EXPECT_EQ(ids.front(), 1) << name;
    EXPECT_EQ(tokenizer.decode(ids), "I saw a girl") << name;
    EXPECT_THAT(tokenizer.decode(tokenizer.encode("a\0b"s)), HasSubstr("\xE2\x81\x87")) << name;
  }
}

TEST(SentencePieceTraits, AreReadFromTheFile) {
  const auto llama = read_sentencepiece_traits(read_text_file(kLlama / "tokenizer.model"), "llama");
  EXPECT_EQ(llama.n_pieces, 32000);
  EXPECT_TRUE(llama.add_dummy_prefix);
  EXPECT_TRUE(llama.byte_fallback);
  EXPECT_FALSE(llama.remove_extra_whitespaces);
  EXPECT_FALSE(llama.has_charsmap);
  EXPECT_TRUE(
      read_sentencepiece_traits(read_text_file(kCorpus / "sentencepiece-tests/test_model.model"), "").has_charsmap);
  const std::string gemma = read_text_file(kGemmaLike / "tokenizer.model");
  EXPECT_FALSE(read_sentencepiece_traits(gemma, "gemma").add_dummy_prefix);
  EXPECT_TRUE(read_sentencepiece_traits(with_dummy_prefix(gemma, true), "gemma").add_dummy_prefix);
}

}  // namespace
}  // namespace kvdiv
