#pragma once
// `kvdiv merge`: the results of `kvdiv run --shard i/n` joined into the one that the whole run would have given.
#include <functional>
#include <optional>
#include <string>

#include "command.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct MergeParams {
  bool force = false;
};

template <class V>
void describe_fields(V& v, MergeParams& p) {
  v.field("force", p.force, "join results of unlike environments: their bits may differ, and a warning says how");
}

using JoinShards = std::function<ExperimentResult(const ShardsInput&, Warnings&)>;

/// `join_run`: the experiment's own part.
int merge_command(const Invocation& invocation, const JoinShards& join_run);

/// "2/8" → the third of eight; Error{usage} for anything else. None: the whole.
Shard parse_shard(const std::optional<std::string>& text);

}  // namespace kvdiv
