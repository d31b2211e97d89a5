#pragma once
// The names and shapes of a published checkpoint, from its config: what Decoder::weights says (a test compares the two),
// without libtorch.
#include <vector>

#include "kvdiv/model/config.h"
#include "model/weights_check.h"

namespace kvdiv::test {

inline std::vector<WantedWeight> published_weights(const ModelConfig& config) {
  const ModelSizes& s = config.sizes;
  std::vector<WantedWeight> out{{"model.embed_tokens.weight", {s.vocab, s.hidden}}, {"model.norm.weight", {s.hidden}}};
  for (std::int64_t i = 0; i < s.n_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
      out.push_back({layer + name + ".weight", std::move(shape)});
    };
    add("self_attn.q_proj", {s.n_heads * s.head_dim, s.hidden});
    add("self_attn.k_proj", {s.n_kv_heads * s.head_dim, s.hidden});
    add("self_attn.v_proj", {s.n_kv_heads * s.head_dim, s.hidden});
    add("self_attn.o_proj", {s.hidden, s.n_heads * s.head_dim});
    add("mlp.gate_proj", {s.intermediate, s.hidden});
    add("mlp.up_proj", {s.intermediate, s.hidden});
    add("mlp.down_proj", {s.hidden, s.intermediate});
    add("input_layernorm", {s.hidden});
    add("post_attention_layernorm", {s.hidden});
    if (!config.traits.sandwich_norms) continue;
    add("pre_feedforward_layernorm", {s.hidden});
    add("post_feedforward_layernorm", {s.hidden});
  }
  if (!config.traits.tied_head) out.push_back({std::string(kHeadName), {s.vocab, s.hidden}});
  return out;
}

}  // namespace kvdiv::test
