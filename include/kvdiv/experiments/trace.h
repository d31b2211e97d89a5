#pragma once
// `kvdiv trace`: where the difference between the arms comes from. How far ON's stored keys and values are from OFF's and
// from FP64, which operation turns equal inputs into different outputs, how fast the errors grow, and what grouped-query
// attention does to errors of the keys and values that several query heads share.
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct TraceParams : ArithmeticParams, SelectionParams {
  std::vector<std::int64_t> step{1, 4, 16};
  std::int64_t gqa_prompts = 4;
  double gqa_size = 0x1p-11;
  std::int64_t gqa_draws = 8;
  bool no_gqa = false;
};

template <class V>
void describe_fields(V& v, TraceParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<SelectionParams&>(p));
  v.field("step", p.step, "steps whose K/V errors are recorded by position and whose operations are traced, from 1 on");
  v.field("gqa-prompts", p.gqa_prompts,
          "the first so many prompts get noise on K and V, at 1, 2, 4, 8 heads a KV head");
  v.field("gqa-size", p.gqa_size, "relative size of that noise");
  v.field("gqa-draws", p.gqa_draws, "draws of that noise a prompt");
  v.field("no-gqa", p.no_gqa, "leave the noise out");
}

/// Errors of one KV head's keys (after rotary) and values at a step: ‖a − b‖₂/‖b‖₂ over the head's dimensions, by position
/// 0 … n_prompt + step − 1. a and b are in the name: on stored it, off computed it anew at this step, fp64 is one pass in
/// float64. An element is null where ‖b‖ is 0.
struct TraceKvRecord {
  static constexpr std::string_view type = "trace_kv";
  std::string pair_id;
  std::int64_t step = 0, layer = 0;  ///< layer 1 … L
  std::int64_t kv_head = 0;          ///< from 0
  std::int64_t n_prompt = 0;         ///< positions from here on were stored one by one
  std::vector<double> k_on_off, v_on_off;
  std::optional<std::vector<double>> k_on_fp64, k_off_fp64, v_on_fp64, v_off_fp64;  ///< null without a float64 model
};

template <class V>
void describe_fields(V& v, TraceKvRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("step", r.step);
  v.field("layer", r.layer);
  v.field("kv_head", r.kv_head);
  v.field("n_prompt", r.n_prompt);
  v.field("k_on_off", r.k_on_off);
  v.field("k_on_fp64", r.k_on_fp64);
  v.field("k_off_fp64", r.k_off_fp64);
  v.field("v_on_off", r.v_on_off);
  v.field("v_on_fp64", r.v_on_fp64);
  v.field("v_off_fp64", r.v_off_fp64);
}

/// One operation of the newest token at one step, in both arms.
struct TraceBirthRecord {
  static constexpr std::string_view type = "trace_birth";
  std::string pair_id;
  std::int64_t step = 0, layer = 0;  ///< layer 1 … L; L + 1: final norm and head
  std::string operation;  ///< see operations_of; "stored_keys", "stored_values": what the cache brought along
  bool inputs_equal = false, output_equal = false;  ///< of both arms, bit for bit; born here: true and false
  bool isolated_equal = false;                      ///< the output that ON's operation makes of OFF's inputs is OFF's
  std::optional<double> isolated_rel_l2;  ///< ‖on − off‖₂/‖off‖₂ of that output; null where ‖off‖ is 0
  double isolated_max_abs = 0.0;
};

template <class V>
void describe_fields(V& v, TraceBirthRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("step", r.step);
  v.field("layer", r.layer);
  v.field("operation", r.operation);
  v.field("inputs_equal", r.inputs_equal);
  v.field("output_equal", r.output_equal);
  v.field("isolated_equal", r.isolated_equal);
  v.field("isolated_rel_l2", r.isolated_rel_l2);
  v.field("isolated_max_abs", r.isolated_max_abs);
}

void validate(const TraceParams& params);

ExperimentResult run_trace(Context& context, const TraceParams& params);

}  // namespace kvdiv
