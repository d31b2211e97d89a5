#pragma once
// Both arms of one decoder along one text: what experiments that look inside a step are written in.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvdiv/base/text.h"
#include "kvdiv/model/decoder.h"

namespace kvdiv {

/// What a call of an arm gives.
struct ArmOutput {
  at::Tensor logits_V;
  std::int64_t n_rows = 0;  ///< tokens that were sent through the decoder
};

/// An arm that computes something else than it should, on purpose.
class ArmFault {
 public:
  ArmFault() = default;
  ArmFault(const ArmFault&) = delete;
  ArmFault& operator=(const ArmFault&) = delete;
  virtual ~ArmFault() = default;
  /// In the place of `decoder.forward(tokens, cache, tap)`: `cache` is ON's, null in OFF; `tap` sees what was computed.
  virtual ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* tap) = 0;
};

/// What is planted in an arm: a tap that sees everything before any other, or a fault, or nothing.
struct PlantedArm {
  PlantedArm() = default;
  PlantedArm(std::nullptr_t) {}
  PlantedArm(Tap* t) : tap(t) {}
  PlantedArm(ArmFault* f) : fault(f) {}
  Tap* tap = nullptr;
  ArmFault* fault = nullptr;

  /// A call of the arm: the one place at which both arms compute.
  ArmOutput forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache, Tap* observer) const;
};

/// Faults planted on purpose, per arm.
struct Planted {
  PlantedArm on, off;
};

/// Taps one after the other: each gets what the one before it left. Null pointers are skipped.
class TapChain final : public Tap {
 public:
  TapChain(std::initializer_list<Tap*> taps);
  bool wants(Site site, std::int64_t layer) const override;
  at::Tensor visit(Site site, std::int64_t layer, const at::Tensor& tensor) override;
  /// The chain itself, its only member, or null: no tap at all is a faster path through attention.
  Tap* get();

 private:
  std::vector<Tap*> taps_;
};

class Arms {
 public:
  explicit Arms(const Decoder& decoder, Planted planted = {}) : decoder_(decoder), planted_(planted) {}

  /// ON: `tokens` behind what `cache` holds. Logits [V].
  at::Tensor on(std::span<const TokenId> tokens, KvCache& cache, Tap* tap = nullptr) const;
  /// OFF: the whole prefix. Logits [V].
  at::Tensor off(std::span<const TokenId> prefix, Tap* tap = nullptr) const;

  const Decoder& decoder() const { return decoder_; }
  const ModelConfig& config() const { return decoder_.config(); }

 private:
  const Decoder& decoder_;
  Planted planted_;
};

/// A row of logits on the host in FP64: exact for every compute dtype.
std::vector<double> host_logits(const at::Tensor& logits_V);

/// A text that ON chose greedily, with what both arms computed along it: the forced clock. Step t is the choice of
/// tokens[t] from logits_on[t]; at step t OFF computes prompt + tokens[0 … t − 1].
struct Trajectory {
  std::vector<TokenId> prompt, tokens;
  std::vector<std::vector<double>> logits_on, logits_off;  ///< [steps][V]; logits_off is empty unless asked for
  KvCache cache;  ///< ON's after the last step: prompt and all tokens but the last

  std::int64_t n_steps() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t n_prompt() const { return static_cast<std::int64_t>(prompt.size()); }
  /// What OFF computes at a step.
  std::vector<TokenId> prefix(std::int64_t step) const;
  /// The newest token of a step ≥ 1: what ON is fed.
  std::span<const TokenId> newest(std::int64_t step) const;
  /// A copy of ON's cache as it was before a step ≥ 1. The copy has memory of its own.
  KvCache cache_before(std::int64_t step) const;
};

struct TrajectoryRequest {
  std::span<const TokenId> prompt;
  std::int64_t max_steps = 0;
  std::vector<TokenId> eos_ids;  ///< the token that ends the text is its last
  bool with_off = true;
  /// Called after each step, so that a long one shows.
  std::function<void()> on_step = {};
};

/// Throws Error{invalid_measurement} if a logit of either arm is not finite.
Trajectory decode_trajectory(const Arms& arms, const TrajectoryRequest& request);

}  // namespace kvdiv
