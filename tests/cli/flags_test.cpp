// The frozen list of commands and flags: names are a contract, so each new, renamed or removed one is a conscious act.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "cli/command.h"

namespace kvdiv::test {
namespace {

TEST(Flags, AreThoseOfTheFrozenList) {
  std::set<std::string> now, frozen;
  for (const Command& command : commands()) {
    now.insert(command.name);
    for (const FieldInfo& field : command.fields) now.insert(command.name + " --" + field.key);
  }
  std::ifstream list(KVDIV_TEST_ROOT "/tests/cli/flags.txt");
  for (std::string line; std::getline(list, line);) frozen.insert(line);
  ASSERT_GT(frozen.size(), 100u) << "tests/cli/flags.txt";
  for (const std::string& name : now)
    EXPECT_TRUE(frozen.contains(name)) << "new: " << name << "; if it is meant, put it into tests/cli/flags.txt and CHANGELOG.md";
  for (const std::string& name : frozen)
    EXPECT_TRUE(now.contains(name)) << "gone: " << name << "; scripts of users have it: say so in CHANGELOG.md";
}

TEST(Flags, EveryCommandHasTwoExamplesOfItself) {
  for (const Command& command : commands()) {
    EXPECT_GE(command.examples.size(), 2u) << command.name;
    for (const std::string& example : command.examples) EXPECT_TRUE(example.starts_with("kvdiv " + command.name)) << example;
  }
}

}  // namespace
}  // namespace kvdiv::test
