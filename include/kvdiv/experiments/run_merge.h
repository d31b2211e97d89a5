#pragma once
// Shards of one `run` joined: the result that one run would have given, from the shards' records and reports alone.
#include "kvdiv/base/warnings.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

/// Error{unreadable} where the records are not those of a run with these parameters. Speeds are of all shards together;
/// what a shard warned of stays, unless it is counted anew. A verdict `bug` takes its diagnosis from the shard that holds
/// the pair which differs most.
ExperimentResult merge_shards(const ShardsInput& input, Warnings& warnings);

}  // namespace kvdiv
