#pragma once
// config.json → a validated ModelConfig. Every trait comes from the checkpoint; what changes the numbers and is not
// implemented is refused by key and value. No torch in here: the parser takes JSON, so that it can be fuzzed.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/text.h"
#include "kvdiv/base/warnings.h"

namespace kvdiv {

/// When RMSNorm rounds to the compute dtype. LLaMA, Mistral: round the normalised state, then multiply by the weight in
/// the compute dtype. Gemma: multiply in FP32, then round.
enum class NormCast { before_weight, after_weight };
template <>
struct EnumNames<NormCast> {
  static constexpr std::string_view what = "norm_cast";
  static constexpr std::array<std::pair<NormCast, std::string_view>, 2> values{
      {{NormCast::before_weight, "before_weight"}, {NormCast::after_weight, "after_weight"}}};
};

/// What distinguishes the architectures: the whole list. A test flips each one and must see the logits move.
struct Traits {
  double norm_offset = 0.0;  ///< gain is offset + weight (Gemma: 1)
  NormCast norm_cast = NormCast::before_weight;
  std::optional<double> embedding_scale;  ///< √hidden (Gemma), rounded to the compute dtype
  Activation activation = Activation::silu;
  bool sandwich_norms = false;                       ///< norms after attention and after the MLP too (Gemma-2)
  double query_scale = 0.0;                          ///< factor on q·k: head_dim^-½ or query_pre_attn_scalar^-½
  std::optional<double> attention_cap;               ///< soft-cap of the scaled scores
  std::optional<double> final_cap;                   ///< soft-cap of the logits
  std::vector<std::optional<std::int64_t>> windows;  ///< per layer: keys a query sees, itself included; none: all
  bool tied_head = false;                            ///< lm_head is the embedding matrix
};

template <class V>
void describe_fields(V& v, Traits& t) {
  v.field("norm_offset", t.norm_offset);
  v.field("norm_cast", t.norm_cast);
  v.field("embedding_scale", t.embedding_scale);
  v.field("activation", t.activation);
  v.field("sandwich_norms", t.sandwich_norms);
  v.field("query_scale", t.query_scale);
  v.field("attention_cap", t.attention_cap);
  v.field("final_cap", t.final_cap);
  v.field("windows", t.windows);
  v.field("tied_head", t.tied_head);
}

struct ModelSizes {
  std::int64_t n_layers = 0, hidden = 0, intermediate = 0, vocab = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  std::int64_t max_positions = 0;
};

template <class V>
void describe_fields(V& v, ModelSizes& s) {
  v.field("n_layers", s.n_layers);
  v.field("hidden", s.hidden);
  v.field("intermediate", s.intermediate);
  v.field("vocab", s.vocab);
  v.field("n_heads", s.n_heads);
  v.field("n_kv_heads", s.n_kv_heads);
  v.field("head_dim", s.head_dim);
  v.field("max_positions", s.max_positions);
}

struct ModelConfig {
  std::string architecture;  ///< "LlamaForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM"
  ModelSizes sizes;
  Traits traits;
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-6;
  std::vector<TokenId> eos_ids;  ///< generation_config.json's, else config.json's; may be empty
  std::optional<TokenId> bos_id;
  std::string declared_dtype;  ///< torch_dtype or dtype as written, only reported

  /// Parameters as a checkpoint of this config has them (a tied head counted once).
  std::int64_t n_params() const;
};

/// Throws Error{unreadable} that names file, key, value and what is supported. `file` is used in messages.
ModelConfig parse_model_config(const Json& config, const Json& generation_config, const std::string& file,
                               Warnings& warnings);

}  // namespace kvdiv
