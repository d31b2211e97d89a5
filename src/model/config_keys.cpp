#include "config_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

enum class Rule {
  used,         ///< read by parse_model_config
  gemma2_only,  ///< read for Gemma-2; elsewhere it must be absent or null
  ignored,      ///< does not change the numbers of decoding
  off,          ///< changes them unless null, false, 0 or empty
  one,          ///< a factor: changes them unless null or 1
  causal,       ///< changes them unless null or true
};

struct KeyRule {
  std::string_view key;
  Rule rule;
};

constexpr std::array kKeys{
    // Read.
    KeyRule{"architectures", Rule::used},
    KeyRule{"model_type", Rule::used},
    KeyRule{"vocab_size", Rule::used},
    KeyRule{"hidden_size", Rule::used},
    KeyRule{"intermediate_size", Rule::used},
    KeyRule{"num_hidden_layers", Rule::used},
    KeyRule{"num_attention_heads", Rule::used},
    KeyRule{"num_key_value_heads", Rule::used},
    KeyRule{"head_dim", Rule::used},
    KeyRule{"hidden_act", Rule::used},
    KeyRule{"max_position_embeddings", Rule::used},
    KeyRule{"rms_norm_eps", Rule::used},
    KeyRule{"tie_word_embeddings", Rule::used},
    KeyRule{"rope_theta", Rule::used},
    KeyRule{"rope_scaling", Rule::used},
    KeyRule{"rope_parameters", Rule::used},
    KeyRule{"sliding_window", Rule::used},
    KeyRule{"layer_types", Rule::used},
    KeyRule{"bos_token_id", Rule::used},
    KeyRule{"eos_token_id", Rule::used},
    KeyRule{"torch_dtype", Rule::used},
    KeyRule{"dtype", Rule::used},
    KeyRule{"hidden_activation", Rule::gemma2_only},
    KeyRule{"query_pre_attn_scalar", Rule::gemma2_only},
    KeyRule{"attn_logit_softcapping", Rule::gemma2_only},
    KeyRule{"final_logit_softcapping", Rule::gemma2_only},

    // Names, training, tokens, defaults of generation: other flags of kvdiv, or nothing, decide about these.
    KeyRule{"_name_or_path", Rule::ignored},
    KeyRule{"name_or_path", Rule::ignored},
    KeyRule{"_commit_hash", Rule::ignored},
    KeyRule{"transformers_version", Rule::ignored},
    KeyRule{"transformers.js_config", Rule::ignored},
    KeyRule{"unsloth_version", Rule::ignored},
    KeyRule{"unsloth_fixed", Rule::ignored},
    KeyRule{"auto_map", Rule::ignored},
    KeyRule{"is_llama_config", Rule::ignored},
    KeyRule{"initializer_range", Rule::ignored},
    KeyRule{"attention_dropout", Rule::ignored},
    KeyRule{"hidden_dropout", Rule::ignored},
    KeyRule{"use_cache", Rule::ignored},
    KeyRule{"cache_implementation", Rule::ignored},
    KeyRule{"pad_token_id", Rule::ignored},
    KeyRule{"unk_token_id", Rule::ignored},
    KeyRule{"sep_token_id", Rule::ignored},
    KeyRule{"decoder_start_token_id", Rule::ignored},
    KeyRule{"tokenizer_class", Rule::ignored},
    KeyRule{"_attn_implementation", Rule::ignored},
    KeyRule{"attn_implementation", Rule::ignored},
    KeyRule{"_attn_implementation_autoset", Rule::ignored},
    KeyRule{"_flash_attn_2_enabled", Rule::ignored},
    KeyRule{"use_flash_attn", Rule::ignored},
    KeyRule{"gradient_checkpointing", Rule::ignored},
    KeyRule{"output_attentions", Rule::ignored},
    KeyRule{"output_hidden_states", Rule::ignored},
    KeyRule{"return_dict", Rule::ignored},
    KeyRule{"torchscript", Rule::ignored},
    KeyRule{"use_bfloat16", Rule::ignored},
    KeyRule{"id2label", Rule::ignored},
    KeyRule{"label2id", Rule::ignored},
    KeyRule{"num_labels", Rule::ignored},
    KeyRule{"problem_type", Rule::ignored},
    KeyRule{"finetuning_task", Rule::ignored},
    KeyRule{"task_specific_params", Rule::ignored},
    KeyRule{"prefix", Rule::ignored},
    KeyRule{"tf_legacy_loss", Rule::ignored},
    KeyRule{"max_length", Rule::ignored},
    KeyRule{"min_length", Rule::ignored},
    KeyRule{"max_new_tokens", Rule::ignored},
    KeyRule{"do_sample", Rule::ignored},
    KeyRule{"temperature", Rule::ignored},
    KeyRule{"top_k", Rule::ignored},
    KeyRule{"top_p", Rule::ignored},
    KeyRule{"typical_p", Rule::ignored},
    KeyRule{"num_beams", Rule::ignored},
    KeyRule{"num_beam_groups", Rule::ignored},
    KeyRule{"num_return_sequences", Rule::ignored},
    KeyRule{"repetition_penalty", Rule::ignored},
    KeyRule{"length_penalty", Rule::ignored},
    KeyRule{"diversity_penalty", Rule::ignored},
    KeyRule{"early_stopping", Rule::ignored},
    KeyRule{"no_repeat_ngram_size", Rule::ignored},
    KeyRule{"encoder_no_repeat_ngram_size", Rule::ignored},
    KeyRule{"bad_words_ids", Rule::ignored},
    KeyRule{"begin_suppress_tokens", Rule::ignored},
    KeyRule{"suppress_tokens", Rule::ignored},
    KeyRule{"forced_bos_token_id", Rule::ignored},
    KeyRule{"forced_eos_token_id", Rule::ignored},
    KeyRule{"exponential_decay_length_penalty", Rule::ignored},
    KeyRule{"remove_invalid_values", Rule::ignored},
    KeyRule{"output_scores", Rule::ignored},
    KeyRule{"return_dict_in_generate", Rule::ignored},
    KeyRule{"max_sequence_length", Rule::ignored},
    KeyRule{"original_max_position_embeddings", Rule::ignored},  // read by rope scalings only, which are refused

    // Weights that are not plain numbers, or that are not there to be read.
    KeyRule{"quantization_config", Rule::off},
    KeyRule{"quantization", Rule::off},
    KeyRule{"compression_config", Rule::off},
    KeyRule{"pruned_heads", Rule::off},
    KeyRule{"per_layer_config", Rule::off},
    KeyRule{"text_config", Rule::off},
    KeyRule{"vision_config", Rule::off},
    KeyRule{"audio_config", Rule::off},
    // Biases and other norms.
    KeyRule{"attention_bias", Rule::off},
    KeyRule{"mlp_bias", Rule::off},
    KeyRule{"qkv_bias", Rule::off},
    KeyRule{"use_qkv_bias", Rule::off},
    KeyRule{"attention_out_bias", Rule::off},
    KeyRule{"use_bias", Rule::off},
    KeyRule{"bias", Rule::off},
    KeyRule{"lm_head_bias", Rule::off},
    KeyRule{"qk_norm", Rule::off},
    KeyRule{"use_qk_norm", Rule::off},
    KeyRule{"clip_qkv", Rule::off},
    // Another attention.
    KeyRule{"is_causal", Rule::causal},
    KeyRule{"use_bidirectional_attention", Rule::off},
    KeyRule{"use_sliding_window", Rule::off},
    KeyRule{"max_window_layers", Rule::off},
    KeyRule{"sliding_window_pattern", Rule::off},
    KeyRule{"attention_chunk_size", Rule::off},
    KeyRule{"alibi", Rule::off},
    KeyRule{"kv_lora_rank", Rule::off},
    KeyRule{"q_lora_rank", Rule::off},
    KeyRule{"attn_temperature_tuning", Rule::off},
    KeyRule{"add_cross_attention", Rule::off},
    KeyRule{"is_encoder_decoder", Rule::off},
    KeyRule{"cross_attention_hidden_size", Rule::off},
    KeyRule{"tie_encoder_decoder", Rule::off},
    KeyRule{"is_decoder", Rule::ignored},
    KeyRule{"chunk_size_feed_forward", Rule::off},
    KeyRule{"use_parallel_residual", Rule::off},
    KeyRule{"parallel_attn", Rule::off},
    // Another rotary embedding.
    KeyRule{"partial_rotary_factor", Rule::one},
    KeyRule{"rotary_pct", Rule::one},
    KeyRule{"rope_ratio", Rule::one},
    KeyRule{"rope_interleaved", Rule::off},
    KeyRule{"rope_traditional", Rule::off},
    KeyRule{"rope_local_base_freq", Rule::off},
    KeyRule{"no_rope_layers", Rule::off},
    KeyRule{"no_rope_layer_interval", Rule::off},
    // Factors of other families.
    KeyRule{"attention_multiplier", Rule::one},
    KeyRule{"residual_multiplier", Rule::one},
    KeyRule{"embedding_multiplier", Rule::one},
    KeyRule{"logits_scaling", Rule::one},
    KeyRule{"logit_scale", Rule::one},
    KeyRule{"scale_emb", Rule::one},
    KeyRule{"scale_depth", Rule::off},
    KeyRule{"dim_model_base", Rule::off},
    // Above 1, older versions of the reference compute the products in slices, which rounds differently.
    KeyRule{"pretraining_tp", Rule::one},
    // Experts and extra heads.
    KeyRule{"num_local_experts", Rule::off},
    KeyRule{"num_experts", Rule::off},
    KeyRule{"n_routed_experts", Rule::off},
    KeyRule{"num_experts_per_tok", Rule::off},
    KeyRule{"moe", Rule::off},
    KeyRule{"num_nextn_predict_layers", Rule::off},
};

const KeyRule* find_rule(std::string_view key) {
  const auto it = std::find_if(kKeys.begin(), kKeys.end(), [&](const KeyRule& rule) { return rule.key == key; });
  return it == kKeys.end() ? nullptr : &*it;
}

bool is_off(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value == 0) ||
         (value.is_structured() && value.empty());
}

void check_key(const std::string& key, const Json& value, Rule rule, const std::string& architecture,
               const std::string& file) {
  const auto refuse = [&](std::string_view why) {
    fail_unreadable("{}: {} = {} {}", file, key, short_dump(value), why);
  };
  if (rule == Rule::off && !is_off(value)) refuse("changes the numbers and is not supported (only null, false or 0)");
  if (rule == Rule::one && !value.is_null() && !(value.is_number() && value == 1))
    refuse("changes the numbers and is not supported (only null or 1)");
  if (rule == Rule::causal && !value.is_null() && value != true)
    refuse("is not supported: kvdiv decodes causally (only null or true)");
  if (rule == Rule::gemma2_only && !value.is_null() && architecture != "Gemma2ForCausalLM")
    refuse(fmt::format("is a key of Gemma-2, not of {}: remove it, or correct the architecture", architecture));
}

}  // namespace

void check_config_keys(const Json& config, const std::string& architecture, const std::string& file,
                       Warnings& warnings) {
  constexpr std::size_t kShown = 8;
  std::size_t n_unknown = 0;
  std::string unknown;
  for (const auto& [key, value] : config.items()) {
    if (const KeyRule* rule = find_rule(key))
      check_key(key, value, rule->rule, architecture, file);
    else if (!value.is_null() && ++n_unknown <= kShown)
      unknown += (unknown.empty() ? "" : ", ") + short_name(key);
  }
  if (n_unknown > kShown) unknown += fmt::format(" and {} more", n_unknown - kShown);
  if (!unknown.empty())
    warnings.add(WarningCode::unknown_config_keys, fmt::format("{}: not known and not used: {}", file, unknown));
}

}  // namespace kvdiv
