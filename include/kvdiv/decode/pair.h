#pragma once
// One pair: a prompt decoded by both arms, step by step, in lock-step. Nothing is kept but the ids: what a step shows is
// handed to an observer, so that memory does not grow with the number of steps.
//
// The two clocks share all steps up to and including the flip. After it the forced clock goes on feeding OFF with ON's
// tokens, and the free clock lets OFF go on with its own; a pair that wants both decodes OFF twice from there on.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/pair_facts.h"
#include "kvdiv/base/step_metrics.h"
#include "kvdiv/base/text.h"
#include "kvdiv/decode/activations.h"
#include "kvdiv/decode/arms.h"
#include "kvdiv/decode/step_graphs.h"
#include "kvdiv/model/decoder.h"

namespace kvdiv {

/// Chooses a token from FP64 logits [V] at a step; the same function (and the same uniform) for both arms.
using Chooser = std::function<TokenId(std::span<const double> logits, std::int64_t step)>;

struct PairRequest {
  std::span<const TokenId> prompt;
  std::int64_t max_new_tokens = 0;
  std::vector<TokenId> eos_ids;  ///< empty: never ends early
  Clock clock = Clock::both;
  Chooser choose;
  std::int64_t prefill_chunk = 0;        ///< ON's prefill, 0: whole
  ActivationTap* activations = nullptr;  ///< watches both arms; null: none
  StepGraphs* graphs = nullptr;          ///< ON's steps from recordings (GPU only); null: launched one by one
  /// `choose` takes the largest logit, the lowest id on a tie: then a GPU can say it, and no row has to leave it.
  bool greedy = false;
  Planted planted = {};  ///< faults on purpose, per arm
};

/// A row of logits where it was computed, and on the host in FP64 (exact for every compute dtype) once someone asks.
class LogitsRow {
 public:
  void set(at::Tensor logits_V);
  void put_host(std::vector<double> host) { host_ = std::move(host); }
  const at::Tensor& tensor() const { return tensor_; }
  std::span<const double> host();

 private:
  at::Tensor tensor_;
  std::vector<double> host_;
};

/// What a step shows. The rows are valid during the call only.
struct StepView {
  Clock clock = Clock::both;
  std::int64_t step = 0;
  bool same_prefix = true;
  LogitsRow *row_on = nullptr, *row_off = nullptr;
  TokenId token_on = 0, token_off = 0;      ///< −1 where the logits are not finite
  std::optional<StepMetrics> metrics = {};  ///< where the device has compared the rows; else that is left to who looks

  std::span<const double> logits_on() const { return row_on->host(); }
  std::span<const double> logits_off() const { return row_off->host(); }
};
using StepObserver = std::function<void(const StepView&)>;

enum class Finish { eos, length, nonfinite };
template <>
struct EnumNames<Finish> {
  static constexpr std::string_view what = "finish";
  static constexpr std::array<std::pair<Finish, std::string_view>, 3> values{
      {{Finish::eos, "eos"}, {Finish::length, "length"}, {Finish::nonfinite, "nonfinite"}}};
};

struct PairOutcome {
  std::vector<TokenId> tokens_on;
  /// OFF's own tokens; under the forced clock alone, what OFF chose at each step after ON's prefix.
  std::vector<TokenId> tokens_off;
  Finish finish_on = Finish::length, finish_off = Finish::length;
  std::optional<std::int64_t> flip_index;  ///< first same-prefix step at which the arms chose different tokens
  std::optional<NonfiniteStop> nonfinite;
  TokenCount n_tokens_on, n_tokens_off;
  double seconds_on = 0.0, seconds_off = 0.0;
  std::int64_t n_steps_on = 0, n_steps_off = 0;  ///< logits computed by each arm
};

PairOutcome decode_pair(const Decoder& decoder, const PairRequest& request, const StepObserver& observe);

}  // namespace kvdiv
