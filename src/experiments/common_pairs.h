#pragma once
// A pair decoded into its records: what `run` and the reruns of other experiments have in common.
#include <functional>

#include "common_setup.h"
#include "kvdiv/base/records.h"

namespace kvdiv {

struct RecordedPair {
  PairOutcome outcome;
  PairRecord record;
};

/// Called for every step, with the record that went to the sink and what it was made from.
using RecordedStep = std::function<void(const StepRecord&, const StepView&)>;

/// What serves all pairs of a condition; null where it is not wanted.
struct PairAids {
  ActivationTap* activations = nullptr;  ///< what it saw goes into each pair's record, and is forgotten
  StepGraphs* graphs = nullptr;
};

/// "float16/torch/greedy/gsm8k-5/s0": unique in a run, the same in every run.
std::string pair_id_of(const Condition& condition, const PromptItem& prompt, std::int64_t seed);

/// Decodes a pair; its step records and its pair record go to the context's sink and are committed.
RecordedPair decode_to_records(Context& context, const Decoder& decoder, const DecodeParams& params, Clock clock,
                               const Condition& condition, const PromptItem& prompt, std::int64_t seed,
                               const RecordedStep& on_step, const PairAids& aids = {});

}  // namespace kvdiv
