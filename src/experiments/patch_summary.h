#pragma once
// Patches of one condition, gathered by table and summarised over prompts.
#include <map>
#include <string>
#include <vector>

#include "kvdiv/base/json.h"
#include "patch_plan.h"

namespace kvdiv {

/// What a patch left at one step: KL(on‖off) in nats without and with it.
struct PatchEffect {
  double kl_base = 0.0, kl_patched = 0.0;
  bool bit_equal = false;
  /// (base − patched)/base · 100; none where the base is below kNothing.
  std::optional<double> pct_recovered() const;
};

/// Below this there is nothing to recover: half the square of a logit difference of 1.4e-6.
inline constexpr double kNothing = 1e-12;

class PatchSummary {
 public:
  explicit PatchSummary(std::int64_t n_layers) : n_layers_(n_layers) {}
  /// `prompt`: its number; `offset`: steps after the patched one.
  void add(const PatchCase& c, std::int64_t step, std::int64_t offset, std::int32_t prompt, const PatchEffect& effect);
  /// The published protocol's figure: mean KL over all steps of a text, patched at `step` only.
  void add_published(const PatchCase& c, std::int64_t step, std::int32_t prompt, const PatchEffect& over_all_steps);

  /// {parts: [...], by_layer: [...], by_head: [...], decay: [...], decay_by_step: [...], published: [...], random_patch: stat}.
  Json to_json() const;

 private:
  struct Cell {
    std::vector<double> base, patched;
    std::vector<std::int32_t> prompts;
    std::int64_t n_bit_equal = 0;
    Patch patch;  ///< of all these
    void add(std::int32_t prompt, const PatchEffect& effect);
  };
  struct Key {
    PatchGroup group;
    std::string what;
    Direction direction;
    Positions positions;
    std::int64_t step, offset;
    std::int64_t index;  ///< layer (last of the set, from 1) or head; −1 of whole patches
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const PatchCase& c, std::int64_t step, std::int64_t offset);
  static Json describe(const Cell& cell);
  std::string layer_set(const Patch& patch) const;
  Json part_rows() const;
  Json indexed_rows(std::initializer_list<PatchGroup> groups, const char* index_name) const;
  using Entry = std::pair<const Key, Cell>;
  /// Whole patches of ON that were followed over later steps, with their patched step.
  std::vector<const Entry*> followed() const;
  Json decay_rows() const;
  Json decay_by_step_rows() const;
  Json published_rows() const;
  Json published_pooled_rows() const;

  std::int64_t n_layers_;
  std::map<Key, Cell> cells_;      ///< at the patched step and later
  std::map<Key, Cell> published_;  ///< mean over all steps
};

}  // namespace kvdiv
