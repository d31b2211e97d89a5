#pragma once
// Putting what one arm holds into the other: keys and values by layer, KV head and position, and the residual stream of the
// newest token by layer.
//
// ON is patched in its cache, so the patch stays: later steps attend to it. OFF has no state: a patch of it ends with the
// step, whatever it was.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/decode/arms.h"

namespace kvdiv {

enum class Positions { all, stored, prompt, generated };
template <>
struct EnumNames<Positions> {
  static constexpr std::string_view what = "positions";
  static constexpr std::array<std::pair<Positions, std::string_view>, 4> values{{{Positions::all, "all"},
                                                                                 {Positions::stored, "stored"},
                                                                                 {Positions::prompt, "prompt"},
                                                                                 {Positions::generated, "generated"}}};
};

/// [begin, end) of a step ≥ 1 whose newest token stands at n_prompt + step − 1. all: with the newest token; stored: what ON's
/// cache held before the step; prompt; generated: behind the prompt, with the newest token.
std::pair<std::int64_t, std::int64_t> position_range(Positions positions, std::int64_t n_prompt, std::int64_t step);

/// What an arm holds at a step, in the compute dtype; S = n_prompt + step positions.
struct StepStates {
  std::vector<at::Tensor> keys, values;  ///< per layer [1,G,S,D], after rotary
  std::vector<at::Tensor> block;         ///< per layer [1,1,C]: residual stream of the newest token behind the block
};

StepStates states_of_on(const Arms& arms, const Trajectory& trajectory, std::int64_t step);
StepStates states_of_off(const Arms& arms, const Trajectory& trajectory, std::int64_t step);

/// ON's states plus OFF − ON with a random sign on every element of K and V: a patch of the same norm (up to the rounding
/// of 2·ON − OFF) and in the same places, in a direction that has nothing to do with OFF's. `block` stays ON's.
StepStates random_states(const StepStates& on, const StepStates& off, std::uint64_t seed);

struct Patch {
  bool keys = false, values = false, residual = false;
  std::vector<std::int64_t> layers;                ///< from 0; of K and V, and of the residual stream
  std::optional<std::vector<std::int64_t>> heads;  ///< KV heads from 0; none: all
  Positions positions = Positions::all;            ///< of K and V
};

/// ON's step with `donor`'s values in their places. `cache` is ON's before the step, and keeps the patch.
at::Tensor patched_on_step(const Arms& arms, const Trajectory& trajectory, std::int64_t step, const Patch& patch,
                           const StepStates& donor, KvCache& cache);

/// OFF's step likewise; nothing is left of the patch afterwards. Step 0 takes patches of the residual stream only.
at::Tensor patched_off_step(const Arms& arms, const Trajectory& trajectory, std::int64_t step, const Patch& patch,
                            const StepStates& donor);

}  // namespace kvdiv
