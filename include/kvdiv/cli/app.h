#pragma once
// The command line as a whole: what main calls.
#include <string>
#include <vector>

namespace kvdiv {

/// Parses the arguments (without the program's name), runs the command, returns the exit code. Throws Error.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace kvdiv
