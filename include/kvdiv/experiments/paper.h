#pragma once
// `kvdiv paper`: the five experiments in order, in one process, on the same weights and pairs; and every published number
// beside the measured one.
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct PaperParams : ArithmeticParams, DecodeParams {
  std::int64_t samples = 600;
  std::int64_t max_steps = 32;
};

template <class V>
void describe_fields(V& v, PaperParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<DecodeParams&>(p));
  v.field("samples", p.samples, "prompts of the highest mean KL for drift, the FP32 rerun and patching");
  v.field("max-steps", p.max_steps, "steps of patching");
}

void validate(const PaperParams& params);

/// `published`: the object of configs/paper_published.json. The result's conditions are those of `run`; further keys:
/// experiments {drift, falsify, boundary, patch: {controls, conditions, verdict}}, questions [{experiment, question, number,
/// unit, low, high, verdict, sentence}], published [{id, experiment, quantity, published, measured, why}] and signatures
/// {threshold, rows, nearest, nearest_float16, fits, sentence}.
ExperimentResult run_paper(Context& context, const PaperParams& params, const Json& published);

}  // namespace kvdiv
