#pragma once
// What every measuring command does around its experiment: session, result directory, report, printing, exit code.
#include <functional>
#include <string>

#include "command.h"
#include "kvdiv/experiments/context.h"
#include "session.h"

namespace kvdiv {

struct MeasurePlan {
  std::string experiment;     ///< "run"
  Json params;                ///< effective parameters, for the report
  std::vector<DType> dtypes;  ///< that will be loaded
  std::string attention;
  std::int64_t max_new_tokens = 0;
  Shard shard = {};  ///< of a run
};

/// Runs `body` on an opened session and writes the result. Returns the exit code.
int measure(const Invocation& invocation, const MeasurePlan& plan, Session& session,
            const std::function<ExperimentResult(Context&)>& body);

}  // namespace kvdiv
