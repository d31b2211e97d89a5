#include "kvdiv/stats/answers.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include "kvdiv/base/json.h"

namespace kvdiv {
namespace {

void expect_answer(std::string_view text, std::string_view value, std::string_view rule) {
  const ExtractedAnswer a = extract_answer(text);
  EXPECT_EQ(a.value.value_or("(none)"), value) << text;
  EXPECT_EQ(a.rule, rule) << text;
}

// The table of reference results. Where kvdiv differs on purpose, the comment gives what the reference rules say.
TEST(Answers, ReferenceTable) {
  expect_answer("#### 18", "18", "strict");
  expect_answer("####18", "18", "strict");                             // strict: invalid
  expect_answer("#### $1,450,000.", "1450000", "strict");              // strict: invalid
  expect_answer("#### 18.00", "18", "strict");                         // 18.00, unequal to 18 as text
  expect_answer("#### 5\nQuestion: Tom has 7 apples", "5", "strict");  // flexible: 7
  expect_answer("range 3-5", "5", "flexible");                         // -5
  expect_answer("\\boxed{9{,}500}", "9500", "flexible");               // 500
  expect_answer("The answer is 5...", "5", "flexible");                // "5.."
  expect_answer("#### ,", "(none)", "none");                           // strict: the empty string
  expect_answer("so 7 remain\n#### ,", "7", "flexible");
  expect_answer("#### \u221210", "-10", "strict");  // flexible: 10
  expect_answer("3/4", "4", "flexible");            // 4 as well: `/` separates
}

TEST(Answers, ReportedCases) {
  for (const auto text : {"$29.00", "29.", "29,", "$29", "29.0"}) expect_answer(text, "29", "flexible");
  expect_answer("The answer is 72, in total, so the farmer earns that much.", "72", "flexible");
  expect_answer("72 clips, altogether.", "72", "flexible");
  expect_answer("3 4", "4", "flexible");
  expect_answer("Identify the Question: how many are left? 5 + 7 = 12", "12", "flexible");
  expect_answer("Identify the Question\n and answer it: 12", "12", "flexible");
  expect_answer("It is 12.\n\nQuestion: Ann has 3 hats.\nAnswer: #### 3", "12", "flexible");
  expect_answer("\nQuestion: 5", "(none)", "none");
}

TEST(Answers, TextsWithoutANumber) {
  for (const auto text : {"", ".", ",", "$", "-", "...", "####", "#### none", "No idea.", "\u2212", "$,.", "-.,"})
    expect_answer(text, "(none)", "none");
}

TEST(Answers, SignsAndDashes) {
  expect_answer("-5", "-5", "flexible");
  expect_answer("it is -5.", "-5", "flexible");
  expect_answer("(-5)", "-5", "flexible");
  expect_answer("=-5", "-5", "flexible");
  expect_answer("-$5", "-5", "flexible");
  expect_answer("$-5", "-5", "flexible");
  expect_answer("$\u22125", "-5", "flexible");
  expect_answer("- 5", "5", "flexible");  // a list item
  expect_answer("8 - 5", "5", "flexible");
  expect_answer("8 -5", "-5", "flexible");
  expect_answer("3\u20135", "5", "flexible");  // an en dash
  expect_answer("3\u22125", "5", "flexible");
  expect_answer("x-5", "5", "flexible");
  expect_answer("f(2)-5", "5", "flexible");
  expect_answer("--5", "5", "flexible");
  expect_answer("#### -5", "-5", "strict");
  expect_answer("#### -$5", "-5", "strict");
  expect_answer("#### $-1,234.50", "-1234.5", "strict");
  expect_answer("#### +5", "5", "strict");
  expect_answer("#### -0.0", "0", "strict");
}

TEST(Answers, GroupsAndDecimals) {
  expect_answer("1,450,000", "1450000", "flexible");
  expect_answer("9\\,500", "9500", "flexible");
  expect_answer("1{,}450{,}000", "1450000", "flexible");
  expect_answer("3,4", "4", "flexible");            // a list, not 34
  expect_answer("1,2345", "2345", "flexible");      // four digits are no group
  expect_answer("#### 1,2345", "12345", "strict");  // behind the marker all commas go, as in the reference rules
  expect_answer("costs .5", "0.5", "flexible");
  expect_answer("5...6", "6", "flexible");
  expect_answer("1.2.3", "3", "flexible");
  expect_answer("3.5.", "3.5", "flexible");
  expect_answer("007", "7", "flexible");
  expect_answer("2,880,000.50", "2880000.5", "flexible");
  expect_answer("50%", "50", "flexible");
  expect_answer("5:30", "30", "flexible");
  expect_answer("1e5", "5", "flexible");
}

TEST(Answers, StrictTakesTheFirstMarkerThatHasANumber) {
  expect_answer("#### 5\n#### 6", "5", "strict");
  expect_answer("#### x\n#### 6 and 7", "6", "strict");
  expect_answer("##### 6", "6", "strict");
  expect_answer("####\n18", "18", "flexible");  // not on the same line
  expect_answer("#### **18**", "18", "flexible");
  expect_answer("####\u00a0\u200b18", "18", "strict");
}

TEST(Answers, NumbersAreComparedAsDecimalTextExactly) {
  EXPECT_TRUE(same_number("18", "18.00"));
  EXPECT_TRUE(same_number("$29.00", "29."));
  EXPECT_TRUE(same_number("29,", " 29 "));
  EXPECT_TRUE(same_number("1,450,000", "1450000"));
  EXPECT_TRUE(same_number("\u221210", "-10"));
  EXPECT_TRUE(same_number("-0", "0.000"));
  EXPECT_FALSE(same_number("18", "-18"));
  EXPECT_FALSE(same_number("18", "18 apples"));
  EXPECT_FALSE(same_number("", ""));
  EXPECT_FALSE(same_number("x", "x"));
  EXPECT_FALSE(same_number("9007199254740993", "9007199254740992"));  // equal as doubles
  EXPECT_FALSE(same_number("0.1", "0.10000000000000000001"));
}

TEST(Answers, GoldIsTheMarkedNumberOrABareOne) {
  EXPECT_EQ(gold_answer("She has <<3*5=15>>15.\n#### 15"), "15");
  EXPECT_EQ(gold_answer("#### 2,880,000"), "2880000");
  EXPECT_EQ(gold_answer("#### -10"), "-10");
  EXPECT_EQ(gold_answer("18"), "18");
  EXPECT_EQ(gold_answer("18.0\n"), "18");
  EXPECT_EQ(gold_answer("about 18"), std::nullopt);
  EXPECT_EQ(gold_answer(""), std::nullopt);
}

TEST(Answers, EveryGoldOfTheTestSplitIsRead) {
  std::ifstream file(KVDIV_TEST_ROOT "/data/gsm8k/test.jsonl");
  ASSERT_TRUE(file);
  int n = 0, with_comma = 0, negative = 0;
  std::string largest = "0";
  for (std::string line; std::getline(file, line); ++n) {
    const std::string answer = Json::parse(line)["answer"];
    const std::string marked = answer.substr(answer.find("#### ") + 5);
    const auto gold = gold_answer(answer);
    ASSERT_TRUE(gold) << answer;
    EXPECT_EQ(extract_answer(answer).value, gold);
    EXPECT_EQ(extract_answer(answer).rule, "strict");
    EXPECT_TRUE(same_number(*gold, marked)) << marked;
    for (const char c : gold->substr(gold->starts_with('-'))) EXPECT_TRUE(std::isdigit(c)) << *gold;
    with_comma += marked.find(',') != std::string::npos;
    negative += gold->starts_with('-');
    if (gold->size() > largest.size() || (gold->size() == largest.size() && *gold > largest)) largest = *gold;
  }
  EXPECT_EQ(n, 1319);
  EXPECT_EQ(with_comma, 14);
  EXPECT_EQ(negative, 2);
  EXPECT_EQ(largest, "2880000");
}

TEST(Answers, AnyBytesAreSafe) {
  std::mt19937 random(3);
  const std::string alphabet = "0123456789.,-$#{}\\ \n\xe2\x88\x92QeuAx%";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t n = random() % 24; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const ExtractedAnswer a = extract_answer(text);
    EXPECT_EQ(a.value.has_value(), a.rule != "none") << text;
    if (a.value) {
      EXPECT_EQ(canonical_number(*a.value), a.value) << text;  // canonical text is its own canonical form
    }
    const bool has_digit = text.substr(0, text.find("\nQuestion:")).find_first_of("0123456789") != std::string::npos;
    EXPECT_EQ(a.value.has_value(), has_digit) << text;
  }
}

}  // namespace
}  // namespace kvdiv
