#pragma once
// Commands that compute something new from a result that is there: they decode nothing, and write a result of their own.
#include <filesystem>
#include <functional>

#include "command.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

/// Reads the report of `source`, runs `body`, writes and prints the new report. `body` gets the source's report; warnings
/// of the source's state are added. Returns the exit code.
int analyse(const Invocation& invocation, const std::string& name, const std::filesystem::path& source,
            const std::function<ExperimentResult(const Json& source_report)>& body);

}  // namespace kvdiv
