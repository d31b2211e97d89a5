#pragma once
// Errors of keys and values of one step, and their summary over prompts.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kvdiv/decode/arms.h"
#include "kvdiv/experiments/trace.h"

namespace kvdiv {

/// What is compared with what, in the order of KvErrors.
inline constexpr std::array<std::string_view, 6> kKvErrors{"k_on_off", "k_on_fp64", "k_off_fp64",
                                                           "v_on_off", "v_on_fp64", "v_off_fp64"};

/// Keys (after rotary) and values of every layer, [1,G,S,D].
struct KvStates {
  std::vector<at::Tensor> keys, values;
};

/// What ON attends at a step ≥ 1: views of the trajectory's cache.
KvStates kv_of_on(const Trajectory& trajectory, std::int64_t step, std::int64_t n_layers);
/// What a pass over the whole of `tokens` computes. Attention is causal: a position's keys and values do not depend on what
/// comes after it, so one pass serves every step (but not bit by bit: the number of rows decides bits).
KvStates kv_of_off(const Arms& arms, std::span<const TokenId> tokens);

/// Relative errors ‖a − b‖₂/‖b‖₂ of one step.
struct KvErrors {
  std::int64_t n_heads = 0, n_positions = 0;
  /// [quantity][layer][head · n_positions + position]; no layers where there is no FP64.
  std::array<std::vector<std::vector<double>>, kKvErrors.size()> values;
  std::span<const double> head(std::size_t quantity, std::size_t layer, std::int64_t head) const;
};

/// `fp64` may be null, and may hold more positions than the others.
KvErrors kv_errors(const KvStates& on, const KvStates& off, const KvStates* fp64);

/// The record of one layer (from 0) and KV head, without its pair_id.
TraceKvRecord kv_record(const KvErrors& errors, std::int64_t step, std::int64_t n_prompt, std::int64_t layer,
                        std::int64_t head);

class KvSummary {
 public:
  /// Every step ≥ 1 of every prompt; `in_tables`: a step whose errors the tables show.
  void add(std::int32_t prompt, std::int64_t step, std::int64_t n_prompt_tokens, const KvErrors& errors, double kl_nats,
           bool in_tables);

  /// {kv, kv_by_layer, kv_by_head: [{step, positions, …, quantities: stats of prompts' means}],
  /// growth: [{quantity, of, layer, slope}], by_step: [{step, kl, quantities of the newest position}]}.
  Json to_json() const;

 private:
  using Means = std::array<std::vector<double>, kKvErrors.size()>;  ///< one value a prompt
  struct Place {
    std::int64_t step = 0;
    int positions = 0;                  ///< 0: all, 1: the prompt's, 2: generated
    std::int64_t layer = 0, head = -1;  ///< layer 0: all together; head −1: all
    auto operator<=>(const Place&) const = default;
  };
  struct Series {
    std::string_view quantity, of;
    std::int64_t layer = 0;  ///< 0: all together
    auto operator<=>(const Series&) const = default;
  };
  using Points = std::vector<std::pair<std::int64_t, double>>;  ///< (step, value)

  void add_tables(std::int64_t step, std::int64_t n_prompt_tokens, const KvErrors& errors);
  void add_growth(std::int32_t prompt, std::int64_t step, std::int64_t n_prompt_tokens, const KvErrors& errors);
  Json table(bool by_layer, bool by_head) const;
  Json growth_rows() const;
  Json step_rows() const;

  std::map<Place, Means> tables_;
  std::map<Series, std::map<std::int32_t, Points>> growth_;
};

}  // namespace kvdiv
