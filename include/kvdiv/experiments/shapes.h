#pragma once
// `kvdiv shapes`: at how many rows, keys or hidden keys does a backend's result for the same row stop being the same bits?
// Decoding with a cache calls an operation with one row where recomputing the prefix calls it with many: what is found
// here is all that the arms can differ by. Nothing is decoded; operands are random numbers of the model's sizes.
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

enum class ShapeOperation { linear, rms_norm, log_softmax, gated, soft_cap, attention, elementwise };
template <>
struct EnumNames<ShapeOperation> {
  static constexpr std::string_view what = "operation";
  static constexpr std::array<std::pair<ShapeOperation, std::string_view>, 7> values{
      {{ShapeOperation::linear, "linear"},
       {ShapeOperation::rms_norm, "rms_norm"},
       {ShapeOperation::log_softmax, "log_softmax"},
       {ShapeOperation::gated, "gated"},
       {ShapeOperation::soft_cap, "soft_cap"},
       {ShapeOperation::attention, "attention"},
       {ShapeOperation::elementwise, "elementwise"}}};
};

struct ShapesParams : ArithmeticParams {
  std::vector<ShapeOperation> operation{
      ShapeOperation::linear,   ShapeOperation::rms_norm,  ShapeOperation::log_softmax, ShapeOperation::gated,
      ShapeOperation::soft_cap, ShapeOperation::attention, ShapeOperation::elementwise};
  std::int64_t max_rows = 512;
};

template <class V>
void describe_fields(V& v, ShapesParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  v.field("operation", p.operation, "which operations");
  v.field("max-rows", p.max_rows, "rows, keys and hidden keys that are tried, at most");
}

void validate(const ShapesParams& params);

/// A condition for each dtype and backend: {dtype, backend, row_invariant (what the backend promises), shapes: [{operation,
/// axis, shape, first, last, onset, max_ulp, n_probed, n_differing_probed, monotone}]}.
///
/// Axes, each against the same row computed alone, as decoding does:
///   rows         n rows at once, each of them compared, for all blocks of n in the rows that there are
///   queries      attention of the last n queries over `last` keys, as a chunk of a prefill has it
///   keys         attention of a causal block of n queries over n keys: what OFF does at length n
///   hidden keys  attention of one query with n keys before those that its window shows it
///   length       elementwise: the same value at every place of a row of n (all n from 1 to 70), for the backend and, with
///                torch, for ATen's own functions; ATen softmax: 11 scores with n − 11 masked ones behind them
/// `onset`: the smallest n found at which bits differ, null if there is none from `first` to `last`; max_ulp: the largest
/// distance there, in units in the last place of the result's dtype (of results near 0 it can be large). A 16-bit result
/// seldom shows the order of its sum: an onset may lie behind the switch that made it, and none is no proof.
/// Tried are powers of two, their neighbours, multiples of 8 up to 128, of 32 up to 512 and of 128 beyond; then the gap
/// before the first difference is halved down to one, so that the onset is exact if the gap holds one switch. An island of
/// differences narrower than the grid can be missed.
/// `monotone`: whether every n tried from the onset on differs; null without an onset.
///
/// Controls: invariance_holds, if a backend promises it. Verdict: "invariant" (the backends' own operations have no onset
/// anywhere) or "shape_dependent".
ExperimentResult run_shapes(Context& context, const ShapesParams& params);

}  // namespace kvdiv
