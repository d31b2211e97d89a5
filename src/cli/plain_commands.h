#pragma once
// The commands that measure nothing: what can be run here, what was found, and a result printed again.
#include "command.h"

namespace kvdiv {

int models_command(const Invocation& invocation);
int env_command(const Invocation& invocation);
int report_command(const Invocation& invocation);

}  // namespace kvdiv
