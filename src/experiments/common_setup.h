#pragma once
// What experiments share: conditions, how one decodes a pair, which prompts are looked into.
#include <functional>
#include <string>

#include "kvdiv/base/step_metrics.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct Condition {
  DType dtype = DType::float16;
  std::string backend;
  Strategy strategy = Strategy::greedy;
  std::string name() const;  ///< "float16/torch/greedy"
  Json to_json() const;      ///< {dtype, backend, strategy}: how a condition of the report begins
};

/// The seeds that a strategy runs: greedy decoding does not depend on the seed, so it has one.
std::vector<std::int64_t> seeds_of(const DecodeParams& params, Strategy strategy);
bool is_greedy(const DecodeParams& params, Strategy strategy);

SamplingParams sampling_of(const DecodeParams& params, Strategy strategy);

/// The request of one pair. The prompt must outlive it.
PairRequest make_request(const ModelConfig& config, const DecodeParams& params, Clock clock, const Condition& condition,
                         const PromptItem& prompt, std::int64_t seed);

/// Loads each (dtype, backend), notes its cast counts in the result, and calls `body`; stops when interrupted.
void for_each_greedy_condition(Context& context, const ArithmeticParams& params, ExperimentResult& result,
                               const std::function<void(const LoadedModel&, const Condition&)>& body);

/// Both arms of a loaded model, with what the context plants in them.
inline Arms arms_of(const Decoder& decoder, const Context& context) { return Arms(decoder, context.planted); }

/// The trajectory of a prompt; progress is told through `on_step`.
Trajectory trajectory_of(const Arms& arms, const SelectionParams& params, const PromptItem& prompt);

/// Mean KL(on‖off) over the steps of a trajectory, nats.
double mean_kl(const Trajectory& trajectory);

/// The prompts of the highest mean same-prefix KL, highest first; all of them, in their own order, if there are no more
/// than `samples` (then nothing is decoded).
std::vector<const PromptItem*> select_prompts(const Arms& arms, const SelectionParams& params, Context& context);

/// The metrics of a step: the device's, or computed here from the rows.
StepMetrics metrics_of(const StepView& step);

/// Below ten prompts an interval by prompt is too narrow, and a warning says so.
void warn_few_prompts(Context& context);

/// Steps 0 of the arms did the same work: their logits must be the same bits.
bool prefill_is_bit_equal(const Trajectory& trajectory);

}  // namespace kvdiv
