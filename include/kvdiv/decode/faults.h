#pragma once
// Known faults of a cache, or of a reference without one, as values: planted in an arm on purpose, so that kvdiv can be
// shown to find them. None can be planted in a measurement.
//
// ON is the arm with the cache: its prefill is the first call of a text, its decode steps are the calls of one token
// behind it. Faults of ON are in decode unless said otherwise, so that step 0 of the arms still agrees.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kvdiv/base/enums.h"
#include "kvdiv/decode/arms.h"

namespace kvdiv {

enum class Fault {
  // of ON
  rotary_off_by_one,        ///< a newest token's rotary position is off by `shift`, in its query and its stored key
  positions_restart,        ///< rotary positions count from 0 again behind the prompt
  mask_missing_in_chunk,    ///< prefill in chunks of `chunk` whose tokens see all of their chunk; chunk 0: the prefill
                            ///< is whole, and what lacks its mask is a call of several tokens behind stored ones
  window_off_by_one,        ///< windows are `shift` keys larger (negative: smaller)
  window_ignored,           ///< layers with a window see everything
  layers_swapped,           ///< layers with a window see everything, layers without have it
  stale_slot,               ///< a slot of the cache holds K and V of the token `distance` before its own
  kv_heads_mapped_wrongly,  ///< KV head g attends with what head g + `shift` (modulo their number) stored
  cap_dropped,              ///< no soft-cap on the attention scores
  doubled_bos,              ///< the prompt's first token is fed twice
  cache_lower_dtype,        ///< K and V are stored with `mantissa_bits` explicit bits, whatever the compute dtype
  eps_changed,              ///< the ε of every RMSNorm is `factor` times its own
  norm_order_changed,       ///< RMSNorm rounds after the weight instead of before it, or the reverse (see NormCast)
  noise,                    ///< K and V are stored as x·(1 + size·g), g standard normal
  // of OFF
  newest_token_only,    ///< behind step 0 OFF is fed its newest token alone
  prompt_dropped,       ///< behind step 0 OFF is fed the new tokens without the prompt
  last_position_wrong,  ///< logits of the position `shift` before the last
};
template <>
struct EnumNames<Fault> {
  static constexpr std::string_view what = "fault";
  static constexpr std::array<std::pair<Fault, std::string_view>, 17> values{
      {{Fault::rotary_off_by_one, "rotary_off_by_one"},
       {Fault::positions_restart, "positions_restart"},
       {Fault::mask_missing_in_chunk, "mask_missing_in_chunk"},
       {Fault::window_off_by_one, "window_off_by_one"},
       {Fault::window_ignored, "window_ignored"},
       {Fault::layers_swapped, "layers_swapped"},
       {Fault::stale_slot, "stale_slot"},
       {Fault::kv_heads_mapped_wrongly, "kv_heads_mapped_wrongly"},
       {Fault::cap_dropped, "cap_dropped"},
       {Fault::doubled_bos, "doubled_bos"},
       {Fault::cache_lower_dtype, "cache_lower_dtype"},
       {Fault::eps_changed, "eps_changed"},
       {Fault::norm_order_changed, "norm_order_changed"},
       {Fault::noise, "noise"},
       {Fault::newest_token_only, "newest_token_only"},
       {Fault::prompt_dropped, "prompt_dropped"},
       {Fault::last_position_wrong, "last_position_wrong"}}};
};

constexpr Arm arm_of(Fault fault) {
  return fault == Fault::newest_token_only || fault == Fault::prompt_dropped || fault == Fault::last_position_wrong
             ? Arm::off
             : Arm::on;
}

/// A fault with its size and place. Fields that a fault does not name above are of no consequence for it.
struct FaultSpec {
  Fault fault = Fault::rotary_off_by_one;
  std::int64_t shift = 1;
  std::int64_t chunk = 5;
  /// Of stale_slot: a position; negative ones count from the prompt's end.
  std::int64_t slot = -2, distance = 1;
  int mantissa_bits = 7;   ///< 1 … 52
  double size = 1e-3;      ///< of noise, relative to each element
  double factor = 10.0;    ///< on ε
  std::uint64_t seed = 1;  ///< of noise
  /// From 0; none: all. Of stale_slot, kv_heads_mapped_wrongly, cache_lower_dtype and noise.
  std::optional<std::int64_t> layer;
};

template <class V>
void describe_fields(V& v, FaultSpec& s) {
  v.field("fault", s.fault);
  v.field("shift", s.shift);
  v.field("chunk", s.chunk);
  v.field("slot", s.slot);
  v.field("distance", s.distance);
  v.field("mantissa_bits", s.mantissa_bits);
  v.field("size", s.size);
  v.field("factor", s.factor);
  v.field("seed", s.seed);
  v.field("layer", s.layer);
}

/// Empty if the fault can show in texts of `n_positions` positions with prompts of at least `n_prompt` tokens, else the
/// reason: a model without a window cannot have a wrong one.
std::string cannot_be_planted(const FaultSpec& spec, const ModelConfig& config, DType dtype, std::int64_t n_prompt,
                              std::int64_t n_positions);

/// A planted fault; it must outlive whatever `planted()` is given to. It follows one text at a time: a text begins with
/// the whole prompt in one call (of OFF: with the prompt alone), and a call behind it belongs to the text begun last.
/// It can be planted in several decoders, one after the other.
class PlantedFault {
 public:
  explicit PlantedFault(const FaultSpec& spec);
  Planted planted() const;
  const FaultSpec& spec() const { return spec_; }

 private:
  FaultSpec spec_;
  std::unique_ptr<ArmFault> fault_;
};

}  // namespace kvdiv
