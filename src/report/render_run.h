#pragma once
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// A condition of `run`: three groups of steps side by side, accuracy, speed.
std::string run_condition(const Json& condition);

}  // namespace kvdiv
