#pragma once
// The Experiment seam: a params struct with a field list, and one function (context, params) → result. An experiment gets
// everything that touches files through the context, and writes none itself.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/progress.h"
#include "kvdiv/base/records.h"
#include "kvdiv/base/warnings.h"
#include "kvdiv/decode/arms.h"
#include "kvdiv/model/config.h"
#include "kvdiv/model/weights.h"

namespace kvdiv {

struct PromptItem {
  std::string id;
  std::string sha256;      ///< of the ids
  std::int64_t index = 0;  ///< row in its source: the counter of the sampling uniforms
  std::vector<TokenId> ids;
  std::optional<std::string> gold;  ///< canonical number of the reference solution
};

/// Tokens of the longest of these prompts.
inline std::int64_t longest_prompt(std::span<const PromptItem> prompts) {
  std::size_t longest = 0;
  for (const PromptItem& p : prompts) longest = std::max(longest, p.ids.size());
  return static_cast<std::int64_t>(longest);
}

/// Takes records in order; `commit` ends a pair: what came before is durable afterwards.
class RecordSink {
 public:
  RecordSink() = default;
  RecordSink(const RecordSink&) = delete;
  RecordSink& operator=(const RecordSink&) = delete;
  virtual ~RecordSink() = default;
  template <Described R>
  void add(const R& record) {
    if constexpr (std::same_as<R, StepRecord> || std::same_as<R, PairRecord>) see(record);
    write(R::type, to_json_value(record));
  }
  virtual void write(std::string_view type, const Json& record) = 0;
  /// For who summarises a run as it goes.
  virtual void see(const StepRecord&) {}
  virtual void see(const PairRecord&) {}
  virtual void commit() = 0;
  /// The pair, if it is the next of those that an interrupted run left: it is seen, and not written again. None: decode it.
  std::optional<FinishedPair> take_finished(const std::string& pair_id) {
    std::optional<FinishedPair> found = next_finished(pair_id);
    if (!found) return found;
    for (const StepRecord& step : found->steps) see(step);
    see(found->pair);
    return found;
  }
  /// Called when a condition is complete, with the result so far: the report on disk follows the run.
  virtual void checkpoint(const struct ExperimentResult& so_far) = 0;

 private:
  virtual std::optional<FinishedPair> next_finished(const std::string&) { return std::nullopt; }
};

/// A part of a run: of each condition's pairs, counted from 0, every `count`-th from `index` on.
struct Shard {
  std::int64_t index = 0, count = 1;
  bool holds(std::int64_t pair) const { return pair % count == index; }
};

/// The shards of one run, as they stand in their result directories.
struct ShardsInput {
  Json params;  ///< experiment.params, the same in all
  std::int64_t n_layers = 0;
  std::size_t n_prompts = 0;            ///< of the whole run
  std::span<const Json> shard_reports;  ///< by shard index, all of them
  /// The next pair of a shard, in the order of its records. Throws where there is none.
  std::function<FinishedPair(std::size_t shard)> next_pair;
};

struct Context {
  const ModelConfig& config;
  std::span<const PromptItem> prompts;
  /// Loads the checkpoint in a dtype for a backend.
  std::function<LoadedModel(DType, const std::string& backend, const std::string& attention)> load;
  /// Text of generated ids; empty function without a tokenizer.
  std::function<std::string(std::span<const TokenId>)> detokenize;
  RecordSink& sink;
  Warnings& warnings;
  Progress& progress;
  /// Faults planted in an arm, for tests that must find them; null in a measurement.
  Planted planted = {};
  /// Where `load` puts models.
  c10::Device device = c10::kCPU;
  /// Which pairs of a `run` are decoded here.
  Shard shard = {};
};

struct ExperimentResult {
  Json controls = Json::object();
  Json conditions = Json::array();
  Json verdict;                 ///< {kind, sentence}
  Json extra = Json::object();  ///< further top-level keys of the report (cast counts, FP64 check)
  bool complete = false;
};

}  // namespace kvdiv
