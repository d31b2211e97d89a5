#pragma once
// The Stepper seam: logits for a prefix that grows by one token. ON keeps keys and values, OFF keeps nothing but the ids.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvdiv/decode/arms.h"
#include "kvdiv/decode/step_graphs.h"
#include "kvdiv/model/decoder.h"
#include "kvdiv/numerics/device.h"

namespace kvdiv {

class Stepper {
 public:
  Stepper() = default;
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  virtual ~Stepper() = default;

  /// Starts a new sequence: logits [V] after the prompt (step 0).
  virtual at::Tensor prefill(std::span<const TokenId> prompt) = 0;
  /// Feeds one token back: logits [V] after it.
  virtual at::Tensor step(TokenId token) = 0;
  /// Computes the last call again, seen by `tap`; the state afterwards is as before. For diagnosis.
  virtual at::Tensor repeat_last(Tap& tap) = 0;

  /// Rows (tokens) sent through the decoder since construction, repeats for diagnosis left out.
  std::int64_t n_tokens_computed() const { return n_tokens_computed_; }
  /// Seconds spent in forward calls (on a GPU by its own clock), and calls made.
  double seconds() const { return watch_ ? watch_->seconds() : seconds_; }
  std::int64_t n_calls() const { return n_calls_; }

  void set_tap(Tap* tap) { tap_ = tap; }
  /// A fault on purpose: it computes in the place of the decoder, and its rows are counted as they are.
  void set_planted(const PlantedArm& planted) { planted_ = planted; }

 protected:
  at::Tensor timed_forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache);
  /// Counted and timed: one call of the model on a device.
  ArmOutput timed(c10::Device device, const std::function<ArmOutput()>& call);
  const PlantedArm& planted() const { return planted_; }
  Tap* tap() const { return tap_; }

 private:
  Tap* tap_ = nullptr;
  PlantedArm planted_;
  std::int64_t n_tokens_computed_ = 0, n_calls_ = 0;
  double seconds_ = 0.0;
  std::unique_ptr<DeviceStopwatch> watch_;  ///< of a GPU, whose work goes on when a call has returned
};

/// ON: prefill once (whole, or in chunks of `prefill_chunk` tokens if that is positive), then one row a step against the
/// cache. The position of a token is the cache's length, never a counter of its own.
class CachedStepper final : public Stepper {
 public:
  /// `graphs` (may be null; must outlive this): its cache is used, of at least `capacity`, and one-token steps are its.
  CachedStepper(const Decoder& decoder, std::int64_t capacity, std::int64_t prefill_chunk = 0,
                StepGraphs* graphs = nullptr);
  at::Tensor prefill(std::span<const TokenId> prompt) override;
  at::Tensor step(TokenId token) override;
  at::Tensor repeat_last(Tap& tap) override;
  KvCache& cache() { return graphs_ != nullptr ? graphs_->cache() : *own_cache_; }

 private:
  at::Tensor feed(std::span<const TokenId> tokens);

  const Decoder& decoder_;
  std::optional<KvCache> own_cache_;
  StepGraphs* graphs_;
  std::int64_t prefill_chunk_;
  std::vector<TokenId> last_;
  std::int64_t length_before_last_ = 0;
};

/// OFF: the whole prefix, every step.
class FullStepper final : public Stepper {
 public:
  explicit FullStepper(const Decoder& decoder) : decoder_(decoder) {}
  at::Tensor prefill(std::span<const TokenId> prompt) override;
  at::Tensor step(TokenId token) override;
  at::Tensor repeat_last(Tap& tap) override;
  /// Starts from a prefix without computing anything: the next step() computes prefix and token.
  void set_prefix(std::span<const TokenId> prefix) { prefix_.assign(prefix.begin(), prefix.end()); }
  const std::vector<TokenId>& prefix() const { return prefix_; }

 private:
  const Decoder& decoder_;
  std::vector<TokenId> prefix_;
};

}  // namespace kvdiv
