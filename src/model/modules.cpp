#include "modules.h"

namespace kvdiv {
namespace {

Weight add(torch::nn::Module& parent, const std::string& name, std::vector<std::int64_t> shape) {
  return parent.register_module(name, std::make_shared<WeightModule>(std::move(shape)));
}

}  // namespace

AttentionModule::AttentionModule(const ModelSizes& s) {
  q_proj = add(*this, "q_proj", {s.n_heads * s.head_dim, s.hidden});
  k_proj = add(*this, "k_proj", {s.n_kv_heads * s.head_dim, s.hidden});
  v_proj = add(*this, "v_proj", {s.n_kv_heads * s.head_dim, s.hidden});
  o_proj = add(*this, "o_proj", {s.hidden, s.n_heads * s.head_dim});
}

MlpModule::MlpModule(const ModelSizes& s) {
  gate_proj = add(*this, "gate_proj", {s.intermediate, s.hidden});
  up_proj = add(*this, "up_proj", {s.intermediate, s.hidden});
  down_proj = add(*this, "down_proj", {s.hidden, s.intermediate});
}

BlockModule::BlockModule(const ModelConfig& config) {
  const auto& s = config.sizes;
  self_attn = register_module("self_attn", std::make_shared<AttentionModule>(s));
  mlp = register_module("mlp", std::make_shared<MlpModule>(s));
  input_layernorm = add(*this, "input_layernorm", {s.hidden});
  post_attention_layernorm = add(*this, "post_attention_layernorm", {s.hidden});
  if (config.traits.sandwich_norms) {
    pre_feedforward_layernorm = add(*this, "pre_feedforward_layernorm", {s.hidden});
    post_feedforward_layernorm = add(*this, "post_feedforward_layernorm", {s.hidden});
  }
}

BodyModule::BodyModule(const ModelConfig& config) {
  embed_tokens = add(*this, "embed_tokens", {config.sizes.vocab, config.sizes.hidden});
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config.sizes.n_layers; ++i)
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<BlockModule>(config)));
  norm = add(*this, "norm", {config.sizes.hidden});
}

CausalLmModule::CausalLmModule(const ModelConfig& config) {
  model = register_module("model", std::make_shared<BodyModule>(config));
  if (!config.traits.tied_head) lm_head = add(*this, "lm_head", {config.sizes.vocab, config.sizes.hidden});
}

}  // namespace kvdiv
