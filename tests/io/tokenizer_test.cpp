#include "kvdiv/io/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/io/prompts.h"
#include "kvdiv/io/sentencepiece_model.h"
#include "tokenizer_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- published vectors ---------------------------------------------------------------------------------------------

TEST(Tokenizer, GivesThePublishedIdsOfLlama2) {
  const Tokenizer tokenizer = open_tokenizer(kLlama);
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = read_text_file(kLlama / "ggml-vocab-llama-spm.gguf.inp");
  const auto lines = split(read_text_file(kLlama / "ggml-vocab-llama-spm.gguf.out"), '\n');
  std::size_t n = 0;
  for (auto at = inputs.find(separator); at != std::string::npos; at = inputs.find(separator), ++n) {
    const std::string text = inputs.substr(0, at);
    inputs.erase(0, at + separator.size());
    Ids expected;
    for (const auto& id : split(lines.at(n), ' '))
      if (!id.empty()) expected.push_back(std::stoll(id));
    EXPECT_EQ(without_bos(tokenizer.encode(text)), expected) << "text " << n << ": " << text;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_GE(n, 46u);
}

// B76, B77, B80 and more, by the other implementations that the script names; both spellings of B75's flag.
TEST(Tokenizer, GivesTheIdsOfOtherImplementations) {
  const Json golden = read_json_file(kRoot / "tests/io/golden/tokenizer_golden.json");
  for (const auto& [name, want] : golden.items()) {
    const Tokenizer tokenizer = open_tokenizer(name == "toy-llama" ? kStories : kCorpus / name);
    for (const auto& row : want["texts"]) {
      const auto text = row["text"].get<std::string>();
      EXPECT_EQ(tokenizer.encode(text), row["ids"].get<Ids>()) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
    }
    Ids all;
    for (const auto& question : questions()) {
      const Ids ids = tokenizer.encode("Question: " + question + "\nAnswer:");
      all.insert(all.end(), ids.begin(), ids.end());
    }
    for (const auto& [by, hash] : want["gsm8k"].items())
      EXPECT_EQ(sha256_of_ids(all), hash.get<std::string>()) << name << by;
  }
}

TEST(Tokenizer, EncodesTheStoriesModelAsItsSourceSays) {
  EXPECT_THAT(open_tokenizer(kStories).encode("Once upon a time, there was a little girl."),
              ElementsAre(1, 403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 426));
}

// The file has remove_extra_whitespaces; transformers keeps the spaces, and so does the round trip below.
TEST(Tokenizer, WhiteSpaceIsKeptWhereEveryByteCanBe) {
  EXPECT_TRUE(read_sentencepiece_traits(read_text_file(kStories / "tokenizer.model"), "").remove_extra_whitespaces);
  const Tokenizer stories = open_tokenizer(kStories);
  EXPECT_THAT(stories.encode("a  b"), ElementsAre(1, 261, 410, 268));
  EXPECT_THAT(stories.encode("x   y\nz"), ElementsAre(1, 410, 444, 410, 410, 348, 13, 451));
  EXPECT_THAT(stories.encode("a "), ElementsAre(1, 261, 410));
}

TEST(Tokenizer, KnowsItsSizesAndSpecialIds) {
  const Tokenizer llama = open_tokenizer(kLlama), mistral = open_tokenizer(kMistral),
                  gemma = open_tokenizer(kGemmaLike);
  EXPECT_EQ(llama.vocab_size(), 32000);
  EXPECT_EQ(mistral.vocab_size(), 32768);
  EXPECT_EQ(open_tokenizer(kStories).vocab_size(), 512);
  EXPECT_EQ(gemma.vocab_size(), 900);
  EXPECT_EQ(llama.bos_id(), 1);
  EXPECT_EQ(llama.eos_id(), 2);
  EXPECT_EQ(gemma.bos_id(), 2);
  EXPECT_EQ(gemma.eos_id(), 1);
}

// ---- round trip (B80) ----------------------------------------------------------------------------------------------

TEST(Tokenizer, EveryGsm8kQuestionComesBackByteForByte) {
  const auto all = questions();
  ASSERT_EQ(all.size(), 1319u);
  for (const fs::path& dir : {kLlama, kMistral, kStories, kGemmaLike}) {
    const Tokenizer tokenizer = open_tokenizer(dir);
    for (const auto& question : all) EXPECT_EQ(tokenizer.decode(tokenizer.encode(question)), question) << dir;
  }
}

TEST(Tokenizer, OddTextsComeBack) {
  const std::vector<std::string> texts{"",
                                       " ",
                                       "   ",
                                       "\n",
                                       "\n\n",
                                       " \n ",
                                       "a\nb",
                                       "a\r\nb",
                                       "\t",
                                       "a\0b"s,
                                       "\x01\x7f",
                                       "\xF0\x9F\x98\x80",
                                       "\xE2\x80\x8B",
                                       "\xC2\xA0",
                                       "\xE2\x88\x92",
                                       "\xEF\xBF\xBD",
                                       "\xEF\xBB\xBFx",
                                       "<s>",
                                       "</s>",
                                       "<unk>",
                                       "<bos>",
                                       "<0x0A>",
                                       "\xF4\x8F\xBF\xBF",
                                       "e\xCC\x81",
                                       "x ",
                                       " x",
                                       "  x  "};
  for (const fs::path& dir : {kLlama, kMistral, kStories, kGemmaLike}) {
    const Tokenizer tokenizer = open_tokenizer(dir);
    for (const auto& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << dir;
  }
}

TEST(Tokenizer, BytesOutsideTheVocabularyAreByteTokens) {
  const Tokenizer llama = open_tokenizer(kLlama);
  EXPECT_THAT(llama.encode("a\nb"), ElementsAre(1, 263, 13, 29890));  // <0x0A> is 13
  EXPECT_THAT(llama.encode("\xF0\x9F\xA6\xA9"),
              ElementsAre(1, 29871, 243, 162, 169, 172));  // a flamingo: its four bytes
}

TEST(Tokenizer, TextsThatAreNotUtf8AreRefusedWithTheOffset) {
  const Tokenizer tokenizer = open_tokenizer(kLlama);
  for (const auto& [text, where] : std::vector<std::pair<std::string, std::string>>{{"\xff", "byte 0 is 0xff"},
                                                                                    {"ab\xc3", "byte 2 is 0xc3"},
                                                                                    {"\xed\xa0\x80", "byte 0 is 0xed"},
                                                                                    {"x\xc0\x80", "byte 1 is 0xc0"}}) {
    try {
      tokenizer.encode(text);
      ADD_FAILURE() << where;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THAT(error.what(), HasSubstr(where));
    }
  }
}

// ---- decode (B81) --------------------------------------------------------------------------------------------------

TEST(Decode, DropsOneSpaceWhereOneWasPut) {
  const Tokenizer llama = open_tokenizer(kLlama), gemma = open_tokenizer(kGemmaLike);
  EXPECT_THAT(llama.encode("Hello"), ElementsAre(1, 15043));  // "▁Hello"
  EXPECT_EQ(llama.decode(Ids{15043}), "Hello");
  EXPECT_EQ(llama.decode(Ids{1, 15043, 15043}), "Hello Hello");
  EXPECT_EQ(llama.decode(llama.encode("  Hello")), "  Hello");
  const Ids ids = gemma.encode(" a");
  EXPECT_THAT(ids, ElementsAre(2, 304));  // "▁a"
  EXPECT_EQ(gemma.decode(ids), " a");
  EXPECT_EQ(gemma.decode(gemma.encode("Hello")), "Hello");
}

TEST(Decode, ControlTokensGiveNothingAndUnknownOnesTheirSurface) {
  const Tokenizer llama = open_tokenizer(kLlama);
  EXPECT_EQ(llama.decode(Ids{1, 2, 15043, 2}), "Hello");
  EXPECT_EQ(llama.decode(Ids{}), "");
  EXPECT_EQ(llama.decode(Ids{15043, 0}), "Hello \xE2\x81\x87 ");
}

TEST(Decode, BytesAreKeptThoughTheyAreNoText) {
  const Tokenizer llama = open_tokenizer(kLlama);
  EXPECT_EQ(llama.decode(Ids{243, 162}), "\xF0\x9F");
  EXPECT_EQ(llama.decode(Ids{3, 258}), "\0\xFF"s);
}

TEST(Decode, IdsOutsideTheTokenizerAreRefused) {
  const Tokenizer llama = open_tokenizer(kLlama);
  for (TokenId id : {TokenId{-1}, TokenId{32000}, TokenId{1} << 32, (TokenId{1} << 32) + 5})
    EXPECT_THROW(llama.decode(Ids{5, id}), Error) << id;
}

// ---- Gemma's traits (B79, B81) -------------------------------------------------------------------------------------

TEST(GemmaLike, RunsOfSpacesAndNewlinesAreOneIdEach) {
  const Tokenizer gemma = open_tokenizer(kGemmaLike);
  EXPECT_EQ(gemma.encode("a  b").size(), 1u + 3u);
  EXPECT_EQ(gemma.encode(std::string(27, ' ')).size(), 1u + 1u);
  EXPECT_EQ(gemma.encode("\n    ").size(), 1u + 2u);
  EXPECT_EQ(gemma.encode("\n\n\n").size(), 1u + 1u);
  EXPECT_EQ(gemma.encode("<code>").size(), 1u + 1u);  // a user-defined piece of the model, not a control token
}

TEST(GemmaLike, PutsNoSpaceInFront) {
  const Tokenizer gemma = open_tokenizer(kGemmaLike);
  EXPECT_THAT(gemma.encode("Hello"), ElementsAre(2, 598, 327, 835));
  EXPECT_NE(gemma.encode(" Hello"), gemma.encode("Hello"));
}

TEST(Tokenizer, AddPrefixSpaceFalseIsObeyed) {
  ModelDir dir;
  dir.model(kLlama).config(R"({"add_prefix_space": false})");
  const Tokenizer tokenizer = open_tokenizer(dir.path());
  EXPECT_THAT(tokenizer.encode("Hello"), ElementsAre(1, 10994));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Hello")), "Hello");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" Hello")), " Hello");
  dir.config(R"({"add_prefix_space": true})");
  EXPECT_THAT(open_tokenizer(dir.path()).encode("Hello"), ElementsAre(1, 15043));
  dir.config(R"({"add_prefix_space": null})");
  EXPECT_THAT(open_tokenizer(dir.path()).encode("Hello"), ElementsAre(1, 15043));
}

}  // namespace
}  // namespace kvdiv
