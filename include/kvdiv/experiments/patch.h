#pragma once
// Experiment 5, `kvdiv patch`: what the difference between the arms is made of. Keys, values and the residual stream of the
// newest token are put from one arm into the other, and the KL that is left is measured: at the patched step, and on the
// steps after it.
#include "kvdiv/decode/patching.h"
#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

enum class PatchWhat { residual, k, v, kv };
template <>
struct EnumNames<PatchWhat> {
  static constexpr std::string_view what = "patched quantity";
  static constexpr std::array<std::pair<PatchWhat, std::string_view>, 4> values{
      {{PatchWhat::residual, "residual"}, {PatchWhat::k, "k"}, {PatchWhat::v, "v"}, {PatchWhat::kv, "kv"}}};
};

enum class Direction { off_into_on, on_into_off };
template <>
struct EnumNames<Direction> {
  static constexpr std::string_view what = "direction";
  static constexpr std::array<std::pair<Direction, std::string_view>, 2> values{
      {{Direction::off_into_on, "off_into_on"}, {Direction::on_into_off, "on_into_off"}}};
};

struct PatchParams : ArithmeticParams, SelectionParams {
  std::vector<PatchWhat> what{PatchWhat::residual, PatchWhat::k, PatchWhat::v, PatchWhat::kv};
  std::vector<std::int64_t> step{0, 1, 8};
  std::vector<Direction> direction{Direction::off_into_on, Direction::on_into_off};
  std::vector<Positions> positions{Positions::all, Positions::stored, Positions::prompt, Positions::generated};
  std::optional<std::vector<std::int64_t>> layers;
  std::optional<std::vector<std::int64_t>> heads;
  Clock clock = Clock::forced;
};

template <class V>
void describe_fields(V& v, PatchParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  describe_fields(v, static_cast<SelectionParams&>(p));
  v.field("what", p.what, "what is patched");
  v.field("step", p.step,
          "steps at which it is patched; at 0 the arms are equal (the published protocol), K/V from 1 on");
  v.field("direction", p.direction, "off_into_on: into ON's cache, where it stays; on_into_off: for that step only");
  v.field("positions", p.positions,
          "of K/V: all, those stored before the step, the prompt's, or those behind the prompt");
  v.field("layers", p.layers, "this layer set, 1…L, as one patch (default: all together, and each alone)");
  v.field("heads", p.heads, "this set of KV heads, from 0, as one patch (default: all together, and each alone)");
  v.field("clock", p.clock, "forced, or free: after the published patch OFF goes on with its own tokens");
}

void validate(const PatchParams& params);

ExperimentResult run_patch(Context& context, const PatchParams& params);

}  // namespace kvdiv
