#pragma once
// The environment as recorded in reports: what may change bits or speed. No host names, no addresses.
#include "kvdiv/base/json.h"

namespace kvdiv {

/// {cpu, n_threads, device, gpu, driver, cuda, cublas, os, env_vars}. `gpu`: what the device module says of itself; null on a
/// CPU, and the GPU's keys are null then.
Json describe_environment(int n_threads, const Json& gpu = nullptr);

/// {version, numeric_version, git_commit, build_type, compiler, libtorch}.
Json describe_tool(const std::string& libtorch_version);

/// "2026-01-31T12:00:00Z", and the same without punctuation for directory names ("20260131T120000Z").
std::string utc_stamp();
std::string utc_stamp_compact();

}  // namespace kvdiv
