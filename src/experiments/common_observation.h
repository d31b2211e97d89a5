#pragma once
// Everything that both arms computed at some steps along one text: what a diagnosis looks at. The arms are black boxes:
// nothing here asks what is planted in them.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kvdiv/decode/arms.h"
#include "kvdiv/numerics/tap.h"

namespace kvdiv {

/// "query_rotary": how a site is called in a report.
std::string_view name_of_site(Site site);

/// An arm's step: copies in double of what it computed, by site, layer and call. A prefill in chunks has many calls.
class ArmStep final : public Tap {
 public:
  enum class Keep { all_rows, newest_row };  ///< newest_row: of everything but keys and values
  explicit ArmStep(Keep keep) : keep_(keep) {}
  bool wants(Site, std::int64_t) const override { return true; }
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override;

  bool has(Site site, std::int64_t layer) const { return seen_.contains({site, layer}); }
  /// Empty if it was not seen.
  std::span<const at::Tensor> calls(Site site, std::int64_t layer) const;
  /// Of the last call: [B,1,C], [B,H,1,D], [B,H,1,S]; keys and values whole. It must have been seen.
  at::Tensor newest(Site site, std::int64_t layer) const;
  /// All rows of all calls, for sites whose rows have one width: not scores and weights, whose S grows with the calls.
  at::Tensor rows(Site site, std::int64_t layer) const;
  /// Tokens that were embedded.
  std::int64_t n_rows() const { return n_rows_; }

 private:
  Keep keep_;
  std::int64_t n_rows_ = 0;
  std::map<std::pair<Site, std::int64_t>, std::vector<at::Tensor>> seen_;
};

/// Both arms at a step of the forced clock. Step 0: the prompt, with all its rows, which chunks of it are held against;
/// of later steps the newest row is enough, and OFF's others would take a model's memory several times.
struct ObservedStep {
  ObservedStep(std::int64_t s, std::int64_t n)
      : step(s),
        n_prompt(n),
        on(s == 0 ? ArmStep::Keep::all_rows : ArmStep::Keep::newest_row),
        off(s == 0 ? ArmStep::Keep::all_rows : ArmStep::Keep::newest_row) {}
  std::int64_t step, n_prompt;
  ArmStep on, off;
  std::int64_t n_positions() const { return n_prompt + step; }
  /// Rows that an arm must compute.
  std::int64_t expected_on() const { return step == 0 ? n_prompt : 1; }
  std::int64_t expected_off() const { return n_positions(); }
};
using ObservedSteps = std::vector<std::unique_ptr<ObservedStep>>;

/// Decodes along the trajectory's tokens once more and keeps these steps (ascending).
ObservedSteps observe(const Arms& arms, const Trajectory& text, std::span<const std::int64_t> steps);

/// ON fed the prompt in calls of `chunk` tokens, beside OFF's whole prompt: step 0 of another kind.
std::unique_ptr<ObservedStep> observe_chunked(const Arms& arms, const Trajectory& text, std::int64_t chunk);

/// Whether this site counts keys in its last dimension.
constexpr bool is_over_keys(Site site) {
  return site == Site::scores || site == Site::capped_scores || site == Site::weights;
}
/// Whether this site holds a row per key.
constexpr bool is_stored(Site site) { return site == Site::keys || site == Site::values; }

/// ‖a − b‖/max(‖a‖, ‖b‖), Frobenius; 0 if both are zero, infinite if the shapes differ.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

/// The last n of a dimension.
at::Tensor last_of(const at::Tensor& x, std::int64_t dimension, std::int64_t n);

/// What an arm did otherwise than the other, at its first place in the order of computation.
struct FirstDifference {
  std::int64_t step = 0, layer = 0;  ///< layer from 0; the number of layers for final norm and logits
  Site site = Site::embedding;
  double relative = 0.0;          ///< see relative_difference; infinite for rows or sites that one arm lacks
  std::optional<Arm> missing_in;  ///< the arm that never came to this site
};

/// Differences of at most this size are FP64's own: sums of some thousand terms, through some tens of layers.
inline constexpr double kFp64Agreement = 1e-9;

/// The first place at which the arms differ by more than `agreement`. Keys and weights are compared where both arms
/// have them, the newest last: how many there are is another question.
std::optional<FirstDifference> first_difference(const ObservedStep& step, std::int64_t n_layers, double agreement);

}  // namespace kvdiv
