#include "kvdiv/decode/faults.h"

#include <algorithm>

#include "fault_arms.h"
#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

std::unique_ptr<ArmFault> make(const FaultSpec& spec) {
  switch (spec.fault) {
    case Fault::window_off_by_one:
    case Fault::window_ignored:
    case Fault::layers_swapped:
    case Fault::cap_dropped:
    case Fault::eps_changed:
    case Fault::norm_order_changed:
      return other_model(spec);
    case Fault::rotary_off_by_one:
    case Fault::positions_restart:
    case Fault::mask_missing_in_chunk:
      return other_positions(spec);
    case Fault::stale_slot:
    case Fault::kv_heads_mapped_wrongly:
    case Fault::cache_lower_dtype:
    case Fault::noise:
      return other_cache(spec);
    case Fault::doubled_bos:
    case Fault::newest_token_only:
    case Fault::prompt_dropped:
    case Fault::last_position_wrong:
      return other_tokens(spec);
  }
  fail(ErrorKind::internal, "fault {} is unknown", static_cast<int>(spec.fault));
}

/// Windows that hide something from texts of so many positions; a larger one has no effect on them.
std::string no_window(const FaultSpec& spec, const ModelConfig& config, std::int64_t n_positions) {
  std::optional<std::int64_t> smallest;
  bool all = true;
  for (const auto& window : config.traits.windows) {
    all = all && window.has_value();
    if (window) smallest = std::min(smallest.value_or(*window), *window);
  }
  if (!smallest) return "no layer has a window";
  const std::int64_t reach =
      *smallest + (spec.fault == Fault::window_off_by_one ? std::max<std::int64_t>(spec.shift, 0) : 1);
  if (n_positions <= reach) return fmt::format("{} positions do not fill a window of {}", n_positions, *smallest);
  if (spec.fault == Fault::layers_swapped && all) return "every layer has a window: there is nothing to swap";
  if (spec.fault == Fault::window_off_by_one && *smallest + spec.shift < 2)
    return fmt::format("a window of {} cannot be {} keys smaller", *smallest, -spec.shift);
  return {};
}

}  // namespace

std::string cannot_be_planted(const FaultSpec& spec, const ModelConfig& config, DType dtype, std::int64_t n_prompt,
                              std::int64_t n_positions) {
  switch (spec.fault) {
    case Fault::window_off_by_one:
    case Fault::window_ignored:
    case Fault::layers_swapped:
      return no_window(spec, config, n_positions);
    case Fault::kv_heads_mapped_wrongly:
      return config.sizes.n_kv_heads > 1 ? "" : "there is one KV head";
    case Fault::cap_dropped:
      return config.traits.attention_cap ? "" : "attention scores are not capped";
    case Fault::norm_order_changed:
      return dtype == DType::float16 || dtype == DType::bfloat16
                 ? ""
                 : fmt::format("in {} nothing is rounded between norm and weight", name_of(dtype));
    case Fault::mask_missing_in_chunk:
      return n_prompt > 1 ? "" : "a prompt of one token has no mask";
    case Fault::stale_slot: {
      const std::int64_t slot = spec.slot < 0 ? n_prompt + spec.slot : spec.slot;
      return slot - spec.distance >= 0 && slot < n_positions ? "" : "a prompt has no such slot";
    }
    case Fault::last_position_wrong:
      return n_prompt > spec.shift ? "" : "a prompt has no such position";
    default:
      return {};
  }
}

PlantedFault::PlantedFault(const FaultSpec& spec) : spec_(spec), fault_(make(spec)) {}

Planted PlantedFault::planted() const {
  return arm_of(spec_.fault) == Arm::on ? Planted{fault_.get(), nullptr} : Planted{nullptr, fault_.get()};
}

}  // namespace kvdiv
