// What load_prompts refuses, and in which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prompts_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;
using testing::AllOf;
using testing::HasSubstr;

class PromptRefusals : public PromptsTest {};

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST_F(PromptRefusals, BadIdsAreNamedWithTheirPosition) {
  const std::string first = "{\"ids\": [1]}\n";
  EXPECT_THAT(refusal(first + R"({"ids": [1, 2, 512]})"), AllOf(HasSubstr(at(2) + "key ids[2]"), HasSubstr("512")));
  EXPECT_THAT(refusal(R"({"ids": [-1]})"), AllOf(HasSubstr(at(1) + "key ids[0]"), HasSubstr("-1")));
  EXPECT_THAT(refusal(R"({"ids": [1, 2.5]})"),
              AllOf(HasSubstr("key ids[1]"), HasSubstr("expected an integer, found 2.5")));
  EXPECT_THAT(refusal(R"({"ids": [1.0]})"), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal(R"({"ids": [true]})"), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal(R"({"ids": ["1"]})"), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal(R"({"ids": [18446744073709551615]})"), HasSubstr("expected an integer that fits"));
  EXPECT_THAT(refusal(R"({"ids": 5})"), HasSubstr("key ids: expected a list"));
  EXPECT_THAT(refusal(R"({"ids": []})"), HasSubstr("key ids"));
}

TEST_F(PromptRefusals, BadTextsAreNamed) {
  EXPECT_THAT(refusal(R"({"prompt": ""})"), HasSubstr(at(1) + "key prompt"));
  EXPECT_THAT(refusal(R"({"question": "", "answer": "4"})"), HasSubstr("key question"));
  EXPECT_THAT(refusal(R"({"prompt": 5})"), HasSubstr("key prompt: expected a text, found 5"));
  EXPECT_THAT(refusal(R"({"question": "q", "answer": 4})"), HasSubstr("key answer: expected a text, found 4"));
  EXPECT_THAT(refusal(R"({"text": "q", "label": 4})"),
              HasSubstr("expected a key ids, prompt or question, found text, label"));
  EXPECT_THAT(refusal("{}"), HasSubstr("found no key"));
  EXPECT_THAT(refusal(R"({"answer": "4"})"), HasSubstr("found answer"));
  EXPECT_THAT(refusal(R"({"prompt": null})"), HasSubstr("found prompt"));
}

TEST_F(PromptRefusals, BadLinesAreNamed) {
  EXPECT_THAT(refusal("{\"ids\": [1]}\n\n{\"ids\": [1, 2"), HasSubstr(params_.prompts + ":3"));
  EXPECT_THAT(refusal("[1]"), HasSubstr(at(1) + "expected one JSON object on the line"));
  EXPECT_THAT(refusal("hello"), HasSubstr(params_.prompts + ":1"));
  EXPECT_THAT(refusal("{\"ids\": [1]} {\"ids\": [2]}"), HasSubstr(params_.prompts + ":1"));
  EXPECT_THAT(refusal("{\"prompt\": \"\xff\"}"), HasSubstr(params_.prompts + ":1"));
  EXPECT_THAT(refusal(R"({"prompt": "\ud83d"})"), HasSubstr(params_.prompts + ":1"));
  EXPECT_THAT(refusal(R"({"ids": [1], "ids": [2]})"), AllOf(HasSubstr(params_.prompts + ":1"), HasSubstr("ids")));
  EXPECT_THAT(refusal("{\n\"ids\": [1]\n}"), HasSubstr(params_.prompts + ":1"));
}

TEST_F(PromptRefusals, IdsOfPromptsMustDiffer) {
  EXPECT_THAT(refusal("{\"id\": \"a\", \"ids\": [1]}\n{\"id\": \"b\", \"ids\": [1]}\n{\"id\": \"a\", \"ids\": [1]}"),
              AllOf(HasSubstr(at(3)), HasSubstr("'a'"), HasSubstr("line 1")));
  EXPECT_THAT(refusal("{\"id\": 7, \"ids\": [1]}\n{\"id\": \"7\", \"ids\": [1]}"), HasSubstr("'7'"));
  EXPECT_THAT(refusal("{\"ids\": [1]}\n{\"id\": \"line-1\", \"ids\": [1]}"), HasSubstr("'line-1'"));
  EXPECT_THAT(refusal(R"({"id": "", "ids": [1]})"), HasSubstr("key id"));
  EXPECT_THAT(refusal(R"({"id": [1], "ids": [1]})"), HasSubstr("key id"));
  EXPECT_EQ(load(R"({"id": null, "ids": [1]})").prompts[0].id, "line-1");
}

TEST_F(PromptRefusals, EmptyAndMissingFilesAreUnreadable) {
  EXPECT_THAT(refusal(""), HasSubstr("no prompt is left of 0 rows"));
  EXPECT_THAT(refusal("\n \r\n"), HasSubstr("no prompt is left of 0 rows"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git-LFS"));
  for (const std::string& path : {(dir_ / "absent.jsonl").string(), dir_.path().string(), std::string()}) {
    PromptParams params;
    params.prompts = path;
    EXPECT_THAT(refusal_of(params, &tokenizer()), HasSubstr(path));
  }
}

TEST_F(PromptRefusals, TextWithoutATokenizerSaysToGiveIds) {
  write("{\"ids\": [1]}\n{\"prompt\": \"x\"}\n");
  EXPECT_THAT(refusal_of(params_, nullptr), AllOf(HasSubstr(at(2)), HasSubstr("\"ids\"")));
  params_.limit = 1;  // only the chosen rows need one
  EXPECT_EQ(load_prompts(params_, nullptr, kGsm8k, kVocab).prompts.size(), 1u);
  EXPECT_THAT(refusal_of(gsm8k(1), nullptr), HasSubstr("test.jsonl:1310: "));
}

TEST_F(PromptRefusals, ATokenizerOfAnotherModelIsFoundOut) {
  write(R"({"prompt": "Once upon a time"})");
  try {
    load_prompts(params_, &tokenizer(), kGsm8k, 400);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("id 403"), HasSubstr("400")));
  }
}

TEST_F(PromptRefusals, FewShotNeedsQuestions) {
  params_.num_fewshot = 1;
  EXPECT_THAT(refusal(R"({"ids": [1]})", ErrorKind::usage), HasSubstr("--num-fewshot"));
  EXPECT_THAT(refusal(R"({"prompt": "x"})", ErrorKind::usage), HasSubstr("key prompt"));
  EXPECT_TRUE(load(R"({"question": "2+2?"})").prompts[0].text.starts_with("Question: Natalia"));
}

}  // namespace
}  // namespace kvdiv
