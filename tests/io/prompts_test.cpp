#include "kvdiv/io/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "prompts_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

class Prompts : public PromptsTest {};

// ---- gsm8k ---------------------------------------------------------------------------------------------------------

TEST_F(Prompts, Gsm8kIsThePublishedSample) {
  const auto set = load_prompts({}, &tokenizer(), kGsm8k, kVocab);
  ASSERT_EQ(set.prompts.size(), 700u);
  ASSERT_EQ(set.indices.size(), 700u);
  EXPECT_EQ(set.source, "gsm8k");
  EXPECT_EQ(set.sha256, "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14");
  EXPECT_EQ(Ids(set.indices.begin(), set.indices.begin() + 10),
            (Ids{1309, 228, 51, 563, 501, 457, 285, 209, 1116, 178}));
  EXPECT_EQ(Ids(set.indices.end() - 5, set.indices.end()), (Ids{802, 345, 710, 284, 431}));
  EXPECT_EQ(set.prompts[0].id, "gsm8k-test-1309");
  for (const auto& prompt : set.prompts) {
    EXPECT_TRUE(prompt.text.starts_with("Question: ") && prompt.text.ends_with("\nAnswer:"));
    EXPECT_EQ(prompt.ids.front(), 1);
    EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), 1), 1);
    EXPECT_THAT(prompt.solution.value(), HasSubstr("\n#### "));
    EXPECT_EQ(prompt.sha256, sha256_of_ids(prompt.ids));
  }
}

TEST_F(Prompts, Gsm8kRowsHoldTheirQuestion) {
  PromptParams params;
  params.sample_size = 1319;
  const auto set = load_prompts(params, &tokenizer(), kGsm8k, kVocab);
  const auto first = std::find(set.indices.begin(), set.indices.end(), 0) - set.indices.begin();
  const auto& prompt = set.prompts[static_cast<std::size_t>(first)];
  EXPECT_EQ(prompt.id, "gsm8k-test-0");
  EXPECT_TRUE(prompt.text.starts_with("Question: Janet\xE2\x80\x99s ducks lay 16 eggs per day."));
  EXPECT_TRUE(prompt.solution->ends_with("#### 18"));
  EXPECT_EQ(tokenizer().decode(prompt.ids), prompt.text);
}

TEST_F(Prompts, OffsetAndLimitCutTheSample) {
  PromptParams params = gsm8k(3);
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{1309, 228, 51}));
  params.offset = 2;
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{51, 563, 501}));
  params.offset = 698;
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{284, 431}));
  params.limit.reset();
  params.offset = 699;
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{431}));
}

TEST_F(Prompts, AnotherSampleIsAnotherDraw) {
  PromptParams params = gsm8k(4);
  params.sample_size = 10;  // random.Random(42).sample(range(1319), 10)[:4], by the set method
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{1309, 228, 51, 563}));
  params.sample_size = 1319;
  params.sample_seed = 0;
  EXPECT_EQ(load_prompts(params, &tokenizer(), kGsm8k, kVocab).indices, (Ids{788, 861, 82, 530}));
}

TEST_F(Prompts, NothingLeftIsUnreadable) {
  PromptParams params;
  params.offset = 700;
  EXPECT_THAT(refusal_of(params, &tokenizer()), HasSubstr("no prompt is left"));
  params.offset = std::numeric_limits<std::int64_t>::max();
  params.limit = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal_of(params, &tokenizer()), HasSubstr("no prompt is left"));
  EXPECT_THAT(refusal_of(gsm8k(0), &tokenizer()), HasSubstr("--limit 0"));
  params = {};
  params.sample_size = 0;
  EXPECT_THAT(refusal_of(params, &tokenizer()), HasSubstr("no prompt is left"));
}

TEST_F(Prompts, BadNumbersAreUsageErrors) {
  const auto check = [](auto set, const char* flag) {
    PromptParams params = gsm8k(1);
    set(params);
    EXPECT_THAT(refusal_of(params, &tokenizer(), ErrorKind::usage), HasSubstr(flag));
  };
  check([](auto& p) { p.offset = -1; }, "--offset");
  check([](auto& p) { p.limit = -1; }, "--limit");
  check([](auto& p) { p.sample_size = -5; }, "--sample-size");
  check([](auto& p) { p.sample_size = 1320; }, "--sample-size 1320");
  check([](auto& p) { p.sample_seed = -42; }, "--sample-seed");
  check([](auto& p) { p.num_fewshot = -1; }, "--num-fewshot");
  check([](auto& p) { p.num_fewshot = 7474; }, "--num-fewshot 7474");
}

TEST_F(Prompts, FewShotExamplesComeFirstAndOneBosBeforeThem) {
  PromptParams params = gsm8k(1);
  params.num_fewshot = 2;
  const auto prompt = load_prompts(params, &tokenizer(), kGsm8k, kVocab).prompts[0];
  const auto plain = load_prompts(gsm8k(1), &tokenizer(), kGsm8k, kVocab).prompts[0];
  EXPECT_TRUE(prompt.text.starts_with(
      "Question: Natalia sold clips to 48 of her friends in April, and then she sold half as "
      "many clips in May. How many clips did Natalia sell altogether in April and May?\nAnswer: "
      "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"));
  EXPECT_THAT(prompt.text, HasSubstr("#### 72\n\nQuestion: Weng earns $12 an hour"));
  EXPECT_TRUE(prompt.text.ends_with("\n\n" + plain.text));
  EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), 1), 1);
  EXPECT_EQ(prompt.solution, plain.solution);
}

TEST_F(Prompts, AMissingDataDirectoryIsNamed) {
  try {
    load_prompts({}, &tokenizer(), "/nonexistent", kVocab);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/test.jsonl"));
  }
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST_F(Prompts, AFileIsUsedWholeAndInOrder) {
  const auto set = load(R"({"ids": [5, 0, 511]}
{"prompt": "Once upon a time", "id": "story"}

{"question": "2+2?", "answer": "Four.\n#### 4", "id": 7, "extra": [1]}
)");
  ASSERT_EQ(set.prompts.size(), 3u);
  EXPECT_EQ(set.indices, (Ids{0, 1, 2}));
  EXPECT_EQ(set.source, params_.prompts);
  EXPECT_EQ(set.sha256, sha256_hex(read_text_file(params_.prompts)));

  EXPECT_EQ(set.prompts[0].id, "line-1");
  EXPECT_THAT(set.prompts[0].ids, ElementsAre(5, 0, 511));  // as they are: no BOS
  EXPECT_EQ(set.prompts[0].text, "");
  EXPECT_FALSE(set.prompts[0].solution.has_value());

  EXPECT_EQ(set.prompts[1].id, "story");
  EXPECT_THAT(set.prompts[1].ids, ElementsAre(1, 403, 407, 261, 378));
  EXPECT_EQ(set.prompts[1].text, "Once upon a time");

  EXPECT_EQ(set.prompts[2].id, "7");
  EXPECT_EQ(set.prompts[2].text, "Question: 2+2?\nAnswer:");
  EXPECT_EQ(set.prompts[2].solution, "Four.\n#### 4");
}

TEST_F(Prompts, TheHashIsOfLittleEndianInt64) {
  EXPECT_EQ(sha256_of_ids({1, 2}), sha256_hex(std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16)));
  EXPECT_EQ(sha256_of_ids({-2}), sha256_hex("\xfe\xff\xff\xff\xff\xff\xff\xff"));
  EXPECT_EQ(load(R"({"ids": [300]})").prompts[0].sha256, sha256_of_ids({300}));
}

TEST_F(Prompts, ASampleOfAFileIsDrawnOnlyIfAskedFor) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "{\"ids\": [" + std::to_string(i) + "]}\n\n";
  EXPECT_EQ(load(text).prompts.size(), 30u);
  params_.offset = 28;
  EXPECT_EQ(load(text).indices, (Ids{28, 29}));
  params_.offset = 0;
  params_.sample_size = 5;
  const auto set = load(text);
  EXPECT_EQ(set.indices, (Ids{20, 3, 0, 23, 8}));  // random.Random(42).sample(range(30), 5)
  EXPECT_EQ(set.prompts[0].ids, (Ids{20}));
  EXPECT_EQ(set.prompts[0].id, "line-41");
  params_.sample_size = 31;
  EXPECT_THAT(refusal(text, ErrorKind::usage), HasSubstr("--sample-size 31"));
}

TEST_F(Prompts, DefaultsDependOnTheSource) {
  PromptParams params;
  resolve_defaults(params);
  EXPECT_EQ(params.sample_size, 700);
  params.sample_size = 5;
  resolve_defaults(params);
  EXPECT_EQ(params.sample_size, 5);
  resolve_defaults(params_);
  EXPECT_FALSE(params_.sample_size.has_value());
}

TEST_F(Prompts, FieldNamesAreTheFlags) {
  EXPECT_EQ(field_keys<PromptParams>(),
            (std::vector<std::string>{"prompts", "limit", "offset", "sample-size", "sample-seed", "num-fewshot"}));
}

TEST_F(Prompts, IdsWinOverTextBesideThem) {
  const auto set = load(R"({"id": "a", "ids": [3], "question": "2+2?", "answer": "#### 4"}
{"ids": [4], "prompt": "x"}
{"ids": null, "prompt": "x", "question": "ignored"})");
  EXPECT_THAT(set.prompts[0].ids, ElementsAre(3));
  EXPECT_EQ(set.prompts[0].text, "");
  EXPECT_EQ(set.prompts[0].solution, "#### 4");
  EXPECT_THAT(set.prompts[1].ids, ElementsAre(4));
  EXPECT_EQ(set.prompts[2].text, "x");
}

TEST_F(Prompts, AQuestionWithoutAnswerHasNoSolution) {
  EXPECT_FALSE(load(R"({"question": "2+2?"})").prompts[0].solution.has_value());
  EXPECT_EQ(load(R"({"prompt": "2+2=", "answer": "#### 4"})").prompts[0].solution, "#### 4");
}

TEST_F(Prompts, LineEndsByteOrderMarksAndBlankLinesDoNotMatter) {
  const auto set = load("\xEF\xBB\xBF{\"ids\": [1]}\r\n\r\n \t\n{\"ids\": [2]}\r\n{\"ids\": [3]}");
  ASSERT_EQ(set.prompts.size(), 3u);
  EXPECT_EQ(set.prompts[1].id, "line-4");
  EXPECT_EQ(set.prompts[2].id, "line-5");
  EXPECT_EQ(set.indices, (Ids{0, 1, 2}));
}

TEST_F(Prompts, LiteralSpecialTokensAreText) {
  const auto set = load(R"({"prompt": "<s>x</s>"})");
  EXPECT_EQ(std::count(set.prompts[0].ids.begin(), set.prompts[0].ids.end(), 1), 1);
  EXPECT_EQ(std::count(set.prompts[0].ids.begin(), set.prompts[0].ids.end(), 2), 0);
}

}  // namespace
}  // namespace kvdiv
