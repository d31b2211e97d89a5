#pragma once
// Experiment 3, `kvdiv falsify`: attempts to break the explanation by rounding. Two need no model (dot products of random
// numbers; sequential attention blocks), the others look at this checkpoint. The paper has five; `orders` is a sixth, which
// decodes with the arms summing in one order and in two, in exact but slow arithmetic: it runs only if asked for.
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"
#include "kvdiv/stats/pair_table.h"

namespace kvdiv {

enum class FalsifyPart { dot, propagation, projection, flip_kl, fp32, orders };
template <>
struct EnumNames<FalsifyPart> {
  static constexpr std::string_view what = "part";
  static constexpr std::array<std::pair<FalsifyPart, std::string_view>, 6> values{
      {{FalsifyPart::dot, "dot"},
       {FalsifyPart::propagation, "propagation"},
       {FalsifyPart::projection, "projection"},
       {FalsifyPart::flip_kl, "flip-kl"},
       {FalsifyPart::fp32, "fp32"},
       {FalsifyPart::orders, "orders"}}};
};

struct FalsifyParams : ArithmeticParams, DecodeParams {
  std::vector<FalsifyPart> part{FalsifyPart::dot, FalsifyPart::propagation, FalsifyPart::projection,
                                FalsifyPart::flip_kl, FalsifyPart::fp32};
  std::int64_t samples = 600;
};

template <class V>
void describe_fields(V& v, FalsifyParams& p) {
  v.field("part", p.part, "which parts; orders (slow: exact sums in named orders) only if it is given");
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<DecodeParams&>(p));
  v.field("samples", p.samples, "fp32: prompts to run again, those of the highest mean same-prefix KL");
}

void validate(const FalsifyParams& params);

/// Whether a part asks for generated tokens: the others need no room behind the prompts.
bool decodes_pairs(const FalsifyParams& params);

/// `base`: the pairs in the dtypes of `params`, if a run has them already; else they are decoded here. Conditions: one a
/// part (and, where it looks at the checkpoint, a dtype and backend), with the key `part`.
ExperimentResult run_falsify(Context& context, const FalsifyParams& params, const PairTable* base = nullptr);

}  // namespace kvdiv
