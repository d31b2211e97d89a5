// The command line is held to its word: what is unknown, misspelt, of the wrong type, given twice, contradictory or of no
// use is refused before anything is written, with the flag's name and the nearest right one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/command.h"
#include "kvdiv/base/error.h"
#include "kvdiv/cli/app.h"
#include "support/temp_dir.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// In an empty directory that must stay empty. The command line is run in this process: starting a thousand would take minutes.
class Strict : public testing::Test {
 protected:
  Strict() : before_(fs::current_path()) { fs::current_path(cwd_.path()); }
  ~Strict() override {
    EXPECT_TRUE(fs::is_empty(cwd_.path())) << "something was written";
    fs::current_path(before_);
  }

  /// The message of a usage error; a failure, and "", for anything else.
  static std::string refusal(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += " '" + word + "'";
    testing::internal::CaptureStdout();
    std::string message;
    try {
      run_command_line(words);
      ADD_FAILURE() << "accepted:" << line;
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::usage) << line << ": " << message;
    } catch (const std::exception& error) {
      ADD_FAILURE() << line << ": a defect: " << error.what();
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << line;
    EXPECT_LE(std::count(message.begin(), message.end(), '\n'), 1) << line << ": " << message;
    return message;
  }

  static void expect_accepted(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    try {
      EXPECT_EQ(run_command_line(words), 0);
    } catch (const std::exception& error) {
      ADD_FAILURE() << testing::PrintToString(words) << ": " << error.what();
    }
    testing::internal::GetCapturedStdout();
  }

 private:
  TempDir cwd_;
  fs::path before_;
};

/// Nothing is decoded if a test's words are accepted after all.
std::vector<std::string> start_of(const Command& command) {
  std::vector<std::string> words{command.name};
  for (const FieldInfo& field : command.fields)
    if (field.key == "print-config") words.push_back("--print-config");
  return words;
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A value that the flag takes.
std::string good_value(const FieldInfo& field) {
  if (field.kind == FieldKind::boolean) return "";
  if (!field.choices.empty()) return split(field.choices, ',').front();
  const Json& d = field.default_value;
  if (d.is_string()) return d.get<std::string>();
  if (d.is_array() && !d.empty()) return d[0].is_string() ? d[0].get<std::string>() : d[0].dump();
  return field.kind == FieldKind::text || field.kind == FieldKind::texts ? "x" : "3";
}

std::vector<std::string> wrong_values(FieldKind kind) {
  std::vector<std::string> words{""};
  if (kind == FieldKind::text || kind == FieldKind::texts) return words;
  if (kind == FieldKind::list_text) return {"", ",", " "};
  const bool is_integer = kind == FieldKind::integer || kind == FieldKind::list_integer;
  words = {"", " 5", "5 ", "+5", "x", "0x10", "nan", "inf", "-inf", "5x", "1e999", "--5"};
  if (is_integer) words.insert(words.end(), {"1.5", "1.0", "1e3", "99999999999999999999"});
  if (is_comma_list(kind)) words.insert(words.end(), {",", "5,", ",5", "5,,6", "5 ,6"});
  return words;
}

template <class Body>
void for_each_flag(const Body& body) {
  for (const Command& command : commands())
    for (const FieldInfo& field : command.fields) body(command, field);
}

TEST_F(Strict, EveryFlagRefusesWhatIsNotItsType) {
  for_each_flag([](const Command& command, const FieldInfo& field) {
    const std::string flag = "--" + field.key;
    if (field.kind == FieldKind::boolean) {
      for (const char* value : {"=true", "=false", "=1", "="})
        EXPECT_THAT(refusal(with(start_of(command), {flag + value})), HasSubstr(flag));
      return;
    }
    for (const std::string& value : wrong_values(field.kind)) {
      EXPECT_THAT(refusal(with(start_of(command), {flag, value})), HasSubstr(flag)) << command.name << " '" << value << "'";
      EXPECT_THAT(refusal(with(start_of(command), {flag + "=" + value})), HasSubstr(flag)) << command.name << " =" << value;
    }
    EXPECT_THAT(refusal(with(start_of(command), {flag})), HasSubstr(flag)) << "no value";
    if (field.kind == FieldKind::text && field.choices.empty()) {
      EXPECT_THAT(refusal(with(start_of(command), {flag, "--json"})), HasSubstr(flag)) << "another flag in the place of the value";
      EXPECT_THAT(refusal(with(start_of(command), {flag, "[a]"})), HasSubstr("[a]"));
    }
  });
}

TEST_F(Strict, EveryFlagMayBeGivenOnce) {
  for_each_flag([](const Command& command, const FieldInfo& field) {
    const std::string flag = "--" + field.key, value = good_value(field);
    if (field.key == "print-config") return;
    const bool is_switch = field.kind == FieldKind::boolean;
    const std::vector<std::string> twice = is_switch ? std::vector{flag, flag} : std::vector{flag, value, flag, value};
    EXPECT_THAT(refusal(with(start_of(command), twice)), AllOf(HasSubstr(flag), testing::ContainsRegex("2 times|twice")));
    if (!is_comma_list(field.kind)) return;
    EXPECT_THAT(refusal(with(start_of(command), {flag, value + "," + value})), AllOf(HasSubstr(flag), HasSubstr("twice")));
  });
  EXPECT_THAT(refusal({"noise", "--print-config", "--size", "0.5,5e-1"}), HasSubstr("twice")) << "one number in two spellings";
  EXPECT_THAT(refusal({"run", "--print-config", "--max-new-tokens", "3", "--max_new_tokens", "4"}), HasSubstr("2 times"));
}

TEST_F(Strict, AMisspeltNameIsAnsweredWithTheNearest) {
  for_each_flag([](const Command& command, const FieldInfo& field) {
    std::string name = "--" + field.key;
    name.erase(name.size() / 2 + 1, 1);
    EXPECT_THAT(refusal(with(start_of(command), {name, "1"})), AllOf(HasSubstr(name), HasSubstr("did you mean"))) << command.name;
    if (field.choices.empty() || field.kind == FieldKind::boolean) return;
    std::string choice = good_value(field);
    choice += choice.back();
    EXPECT_THAT(refusal(with(start_of(command), {"--" + field.key, choice})), AllOf(HasSubstr("--" + field.key), HasSubstr(good_value(field))));
  });
  EXPECT_THAT(refusal({"run", "--print-config", "--max-new", "3"}), HasSubstr("--max-new-tokens")) << "flags are not abbreviated";
  EXPECT_THAT(refusal({"run", "--print-config", "-limit", "3"}), HasSubstr("--limit"));
  EXPECT_THAT(refusal({"rnu", "--limit", "3"}), HasSubstr("did you mean 'run'"));
  for (const char* word : {"--quiet", "--limit=3", "-x", "--"}) EXPECT_THAT(refusal({word, "run", "--print-config"}), HasSubstr("command first"));
}

TEST_F(Strict, AFlagOfAnotherCommandIsNamedAsThat) {
  for (const Command& command : commands())
    for_each_flag([&](const Command& other, const FieldInfo& field) {
      const auto is_same = [&](const FieldInfo& own) { return own.key == field.key; };
      if (std::any_of(command.fields.begin(), command.fields.end(), is_same)) return;
      EXPECT_THAT(refusal(with(start_of(command), {"--" + field.key, good_value(field)})), AllOf(HasSubstr("--" + field.key), HasSubstr("does not use")))
          << command.name << " " << other.name;
    });
}

TEST_F(Strict, NoArgumentIsTakenForAnother) {
  for (const Command& command : commands()) {
    if (command.positional.empty()) {
      EXPECT_THAT(refusal(with(start_of(command), {"stray"})), HasSubstr("stray")) << command.name;
    }
    EXPECT_FALSE(refusal(with(start_of(command), {""})).empty());
  }
  for (const char* name : {"report", "boundary", "check"}) {
    EXPECT_THAT(refusal({name}), HasSubstr("result directory"));
    EXPECT_THAT(refusal({name, "a", "b"}), HasSubstr("result directory"));
  }
}

struct Settings {
  std::vector<std::string> words;
  std::vector<std::string> says;
};

TEST_F(Strict, ContradictionsAreRefused) {
  const std::vector<Settings> all{{{"run", "--seed", "1", "--seeds", "2"}, {"--seed", "--seeds"}},
                                  {{"run", "--quiet", "--verbose"}, {"--quiet", "--verbose"}},
                                  {{"boundary", "x", "--verbose", "--quiet"}, {"--quiet", "--verbose"}}};
  for (const Settings& s : all)
    for (const std::string& says : s.says) EXPECT_THAT(refusal(s.words), AllOf(HasSubstr(says), HasSubstr("contradict")));
}

/// What is given and of no use was meant otherwise. Defaults, and files (which hold every key), are not held to that.
TEST_F(Strict, AFlagThatTheSettingsDoNotUseIsRefused) {
  const std::vector<Settings> unused{{{"run", "--top-k", "40"}, {"--top-k", "--strategy top-k"}},
                                     {{"run", "--strategy", "greedy,top-p", "--top-k", "40"}, {"--top-k", "--strategy greedy,top-p"}},
                                     {{"run", "--top-p", "0.9"}, {"--top-p", "--strategy top-p"}},
                                     {{"run", "--temperature", "0.5"}, {"--temperature", "top-k or top-p"}},
                                     {{"falsify", "--part", "dot", "--max-new-tokens", "3"}, {"--max-new-tokens", "--part dot"}},
                                     {{"falsify", "--part", "dot,flip-kl", "--samples", "3"}, {"--samples", "fp32"}},
                                     {{"falsify", "--part", "projection", "--strategy", "greedy"}, {"--strategy", "flip-kl or fp32"}},
                                     {{"patch", "--what", "residual", "--heads", "0"}, {"--heads", "--what"}},
                                     {{"patch", "--what", "residual", "--positions", "all"}, {"--positions", "--what"}},
                                     {{"noise", "--kind", "gaussian", "--mantissa-bits", "3"}, {"--mantissa-bits", "--kind mantissa"}},
                                     {{"noise", "--kind", "mantissa", "--size", "0.1"}, {"--size", "gaussian"}},
                                     {{"noise", "--kind", "mantissa", "--noise-seeds", "2"}, {"--noise-seeds", "gaussian"}},
                                     {{"trace", "--no-gqa", "--gqa-size", "0.1"}, {"--gqa-size", "--no-gqa"}},
                                     {{"trace", "--no-gqa", "--gqa-prompts", "1"}, {"--gqa-prompts", "--no-gqa"}},
                                     {{"trace", "--no-gqa", "--gqa-draws", "1"}, {"--gqa-draws", "--no-gqa"}},
                                     {{"mitigate", "--no-search", "--max-subsets", "3"}, {"--max-subsets", "--no-search"}},
                                     {{"run", "--prompts", "p.jsonl", "--sample-seed", "1"}, {"--sample-seed", "--sample-size"}}};
  for (const Settings& s : unused)
    for (const std::string& says : s.says) EXPECT_THAT(refusal(with(s.words, {"--print-config"})), AllOf(HasSubstr(says), HasSubstr("not used")));
  const std::vector<std::vector<std::string>> used{{"run", "--strategy", "greedy,top-k", "--top-k", "40", "--temperature", "0.5"},
                                                   {"run", "--strategy", "top-p", "--top-p", "0.9"},
                                                   {"paper", "--top-k", "40"},
                                                   {"paper"},
                                                   {"falsify", "--max-new-tokens", "3"},
                                                   {"patch", "--heads", "0"},
                                                   {"noise", "--mantissa-bits", "3", "--size", "0.1"},
                                                   {"trace", "--gqa-size", "0.1"},
                                                   {"run", "--sample-seed", "1"},
                                                   {"run", "--prompts", "p.jsonl", "--sample-seed", "1", "--sample-size", "2"}};
  for (const auto& words : used) expect_accepted(with(words, {"--print-config"}));
}

TEST_F(Strict, AReportIsPrintedOrWrittenNotBoth) {
  for (const std::string flag : {"--html", "--csv"})
    EXPECT_EQ(refusal({"report", "x", flag, "y", "--json"}), "--json: not used with " + flag + "; leave one of them out");
}

/// Config files have the same names and the same faults.
class StrictConfig : public Strict {
 protected:
  std::vector<std::string> with_file(const std::string& command, const std::string& text) {
    std::ofstream(files_.path() / "c.json") << text;  // some hundred times: not synchronised with the disk
    return {command, "--print-config", "--config", (files_.path() / "c.json").string()};
  }
  TempDir files_;
};

TEST_F(StrictConfig, EverySettingRefusesWhatIsNotItsType) {
  for_each_flag([&](const Command& command, const FieldInfo& field) {
    if (start_of(command).size() < 2) return;  // takes no file
    std::vector<Json> wrong{Json::object()};
    if (!field.default_value.is_null()) wrong.push_back(nullptr);
    const bool is_text = field.kind == FieldKind::text || field.kind == FieldKind::list_text || field.kind == FieldKind::texts;
    if (field.kind != FieldKind::boolean) wrong.push_back(true);
    if (is_text)
      wrong.insert(wrong.end(), {5, ""});
    else
      wrong.push_back("x");
    if (field.kind == FieldKind::integer) wrong.insert(wrong.end(), {1.5, 1e30, "5"});
    if (is_comma_list(field.kind) || field.kind == FieldKind::texts) {
      const Json good = field.default_value.is_array() && !field.default_value.empty() ? field.default_value[0] : Json(3);
      wrong.insert(wrong.end(), {Json::array(), Json::array({good, good}), Json::array({Json::array()})});
    } else {
      wrong.push_back(Json::array({1}));
    }
    for (const Json& value : wrong)
      EXPECT_THAT(refusal(with_file(command.name, Json{{json_key(field.key), value}}.dump())), AllOf(HasSubstr("c.json"), HasSubstr(json_key(field.key))))
          << command.name << " " << value;
  });
}

TEST_F(StrictConfig, ItsKeysAreHeldToTheirNames) {
  EXPECT_THAT(refusal(with_file("run", R"({"max_new_tokes": 3})")), HasSubstr("did you mean 'max_new_tokens'"));
  EXPECT_THAT(refusal(with_file("run", R"({"max_new_tokens": 3, "max-new-tokens": 4})")), HasSubstr("both spellings"));
  EXPECT_THAT(refusal(with_file("run", R"({"dtype": "float16,float16"})")), HasSubstr("twice"));
  EXPECT_THAT(refusal(with_file("run", R"({"dtype": ["flaot16"]})")), HasSubstr("did you mean 'float16'"));
  EXPECT_THAT(refusal(with_file("run", R"({"config": "other.json"})")), HasSubstr("no such setting"));
  EXPECT_THAT(refusal(with_file("run", R"({"quiet": true, "verbose": true})")), HasSubstr("contradict"));
  EXPECT_THAT(refusal(with_file("run", R"({"seed": [1], "seeds": 2})")), HasSubstr("contradict"));
  EXPECT_THAT(refusal(with_file("run", "[]")), HasSubstr("expected an object"));
}

/// Flags win over the file, and over the one setting of it that they exclude; what is printed can be fed back.
TEST_F(StrictConfig, FlagsWinOverWhatTheyExclude) {
  const auto printed = [&](const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_command_line(words), 0);
    return testing::internal::GetCapturedStdout();
  };
  for (const char* command : {"run", "paper"}) {
    EXPECT_EQ(Json::parse(printed(with(with_file(command, R"({"seeds": 3})"), {"--seed", "7"})))["seed"], Json({7}));
    const Json seeds = Json::parse(printed(with(with_file(command, R"({"seed": [7]})"), {"--seeds", "3"})));
    EXPECT_EQ(seeds["seeds"], 3);
    EXPECT_TRUE(seeds["seed"].is_null());
    EXPECT_EQ(Json::parse(printed(with_file(command, R"({"seed": [7]})")))["seed"], Json({7}));
    const std::string once = printed({command, "--print-config", "--seed", "7"});
    EXPECT_EQ(printed(with_file(command, once)), once);
  }
  expect_accepted(with(with_file("run", R"({"quiet": true})"), {"--verbose"}));
  expect_accepted(with_file("run", R"({"top_k": 40})"));
}

}  // namespace
}  // namespace kvdiv::test
