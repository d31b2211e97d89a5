#pragma once
// Results held against schemas/*.schema.json: what a test writes is what users' scripts read.
#include <filesystem>
#include <string>
#include <vector>

namespace kvdiv::test {

/// What is wrong with the results in a directory and below it: every report.json, and every line of every records.jsonl (a
/// last one without its newline is torn, and left out as readers do). One text a problem: "FILE: line 3: /step: why".
std::vector<std::string> schema_problems(const std::filesystem::path& directory);

/// A failure of the test for each of these problems.
void expect_valid_results(const std::filesystem::path& directory);

}  // namespace kvdiv::test
