#pragma once
// Experiment 2, `kvdiv drift`: how far the arms' residual streams and attention weights are apart, layer by layer, at one
// decode step of the same prefix.
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct DriftParams : ArithmeticParams, SelectionParams {
  std::int64_t step = 1;
  Clock clock = Clock::forced;
  bool unaligned = false;
};

template <class V>
void describe_fields(V& v, DriftParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<SelectionParams&>(p));
  v.field("step", p.step, "decode step at which the arms are compared; 1 is the first at which they differ");
  v.field("clock", p.clock, "forced: OFF follows ON's tokens; free: its own");
  v.field("unaligned", p.unaligned,
          "compare what must not be compared, to see what that looks like: OFF is fed its newest token alone (forced "
          "clock), or states after different tokens are compared (free clock)");
}

void validate(const DriftParams& params);

ExperimentResult run_drift(Context& context, const DriftParams& params);

}  // namespace kvdiv
