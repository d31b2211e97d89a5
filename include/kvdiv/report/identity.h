#pragma once
// What a result was made of and with: by this a run is continued, and shards are joined, or refused with the difference
// named.
#include <string>
#include <vector>

#include "kvdiv/base/json.h"

namespace kvdiv {

struct KeyDifference {
  std::string key;   ///< "model.weights_sha256"
  std::string a, b;  ///< the two values, short; "not there" for a missing one
};

/// The leaves below `path` in which two values differ: the members of objects by their keys, of two lists of one length
/// the first item that differs. Paths that begin with one of `left_out` do not count.
std::vector<KeyDifference> key_differences(const std::string& path, const Json& a, const Json& b,
                                           const std::vector<std::string>& left_out = {});

/// What is measured: weights, config, prompts, parameters, and the arithmetic that the tool promises (its numeric version).
/// Results that differ here have nothing to do with each other.
std::vector<KeyDifference> measured_differences(const Json& a, const Json& b);

/// What it is measured with: CPU, GPU, threads, libraries, switches. Results that differ here may differ in their bits.
std::vector<KeyDifference> environment_differences(const Json& a, const Json& b);

/// Which part of a run it is.
std::vector<KeyDifference> shard_differences(const Json& a, const Json& b);

/// "environment.cpu is "A" there and "B" here", and how many more there are.
std::string describe_differences(const std::vector<KeyDifference>& differences, const std::string& name_a,
                                 const std::string& name_b);

}  // namespace kvdiv
