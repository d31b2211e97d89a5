#pragma once
// Shards of one `run` joined: the result that one run would have given, from the shards' records and reports alone.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kvdiv/base/records.h"
#include "kvdiv/base/warnings.h"
#include "kvdiv/experiments/context.h"
#include "kvdiv/experiments/run.h"

namespace kvdiv {

struct MergeInput {
  RunParams params;
  std::int64_t n_layers = 0;
  std::size_t n_prompts = 0;            ///< of the whole run
  std::span<const Json> shard_reports;  ///< by shard index, all of them
  /// The next pair of a shard, in the order of its records. Throws where there is none.
  std::function<FinishedPair(std::size_t shard)> next_pair;
};

/// Error{unreadable} where the records are not those of a run with these parameters. Speeds are of all shards together;
/// what a shard warned of stays, unless it is counted anew. A verdict `bug` takes its diagnosis from the shard that holds
/// the pair which differs most.
ExperimentResult merge_shards(const MergeInput& input, Warnings& warnings);

}  // namespace kvdiv
