#pragma once
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// A condition of `run`: three groups of steps side by side, accuracy, speed.
std::string run_condition(const Json& condition);

/// Where a bug shows and what it looks like; empty for other verdicts.
std::string bug_details(const Json& verdict);

}  // namespace kvdiv
