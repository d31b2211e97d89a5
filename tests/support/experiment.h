#pragma once
// What an experiment needs around it in a test: a model, prompts, and a sink that keeps everything in memory.
#include <set>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/experiments/context.h"
#include "kvdiv/io/tokenizer.h"
#include "kvdiv/stats/pair_table.h"
#include "support/models.h"

namespace kvdiv::test {

class MemorySink final : public RecordSink {
 public:
  void write(std::string_view type, const Json& r) override {
    ++n_records[std::string(type)];
    if (type == "layer" || type == "head" || type == "patch" || type == "trace") others.push_back(r);
    text += std::string(type) + r.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  void see(const StepRecord& r) override { steps.push_back(r); }
  void see(const PairRecord& r) override { pairs.push_back(r); }
  void commit() override { ++n_commits; }
  void checkpoint(const ExperimentResult&) override { ++n_checkpoints; }
  std::vector<StepRecord> steps;
  std::vector<PairRecord> pairs;
  std::vector<Json> others;  ///< records of the experiments that look inside
  std::map<std::string, int> n_records;
  std::string text;
  int n_commits = 0, n_checkpoints = 0;
};

class Silent final : public Progress {
 public:
  void stage(const std::string&) override {}
  void update(const ProgressUpdate& u) override {
    if (u.n_done == interrupt_after) set_interrupted(true);
  }
  void end_stage() override {}
  std::int64_t interrupt_after = -1;
};

/// Records as a set: the same whatever the order of prompts.
inline std::multiset<std::string> as_set(const std::vector<Json>& records) {
  std::multiset<std::string> out;
  for (const Json& r : records) out.insert(r.dump());
  return out;
}

/// What a run wrote, as experiments 3 and 4 take it: the steps of a pair before the pair.
inline PairTable table_of(const MemorySink& sink) {
  PairTable table;
  for (const PairRecord& pair : sink.pairs) {
    for (const StepRecord& step : sink.steps)
      if (step.pair_id == pair.pair_id) table.add(step);
    table.add(pair);
  }
  return table;
}

/// Whether `validate` calls the changed parameters a usage error.
template <class P>
bool is_refused(const std::function<void(P&)>& change) {
  P p;
  change(p);
  try {
    validate(p);
    return false;
  } catch (const Error& e) {
    return e.kind() == ErrorKind::usage;
  }
}

struct Fixture {
  explicit Fixture(std::filesystem::path model_dir, std::vector<PromptItem> items)
      : dir(std::move(model_dir)), config(config_of(dir)), tokenizer(Tokenizer::open(dir)), prompts(std::move(items)) {}

  Context context() {
    set_interrupted(false);
    Context c{config,
              prompts,
              [this](DType d, const std::string& backend, const std::string& attention) { return backend == "torch" ? loader(d, attention) : load(dir, d, attention, backend); },
              {},
              sink,
              warnings,
              progress,
              planted};
    if (tokenizer) c.detokenize = [this](std::span<const TokenId> ids) { return tokenizer->decode(ids); };
    return c;
  }

  std::filesystem::path dir;
  ModelConfig config;
  std::optional<Tokenizer> tokenizer;
  std::vector<PromptItem> prompts;
  std::function<LoadedModel(DType, const std::string&)> loader = [this](DType d, const std::string& attention) { return load(dir, d, attention); };
  MemorySink sink;
  Warnings warnings;
  Silent progress;
  Planted planted;
};

/// A toy with up to three short prompts.
inline Fixture toy(const std::string& name, std::size_t n_prompts) {
  const auto tokenizer = Tokenizer::open(toy_dir(name));
  std::vector<PromptItem> items;
  const std::vector<std::string> texts{"Once upon a time, there was a little girl.", "Tom and his dog went to the park.",
                                       "Question: Lily has 3 apples and buys 4 more.\nAnswer:"};
  for (std::size_t i = 0; i < n_prompts; ++i)
    items.push_back({fmt::format("p{}", i), "", static_cast<std::int64_t>(i), tokenizer->encode(texts.at(i)), "7"});
  return Fixture(toy_dir(name), std::move(items));
}

}  // namespace kvdiv::test
