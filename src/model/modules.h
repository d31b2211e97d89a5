#pragma once
// The module tree. Its parameter names are the checkpoint's names.
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "kvdiv/model/config.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

/// A leaf with one parameter, "weight": a projection [N,K], a norm [C] or an embedding [V,C].
struct WeightModule : torch::nn::Module {
  explicit WeightModule(std::vector<std::int64_t> weight_shape) : shape(std::move(weight_shape)) {
    weight = register_parameter("weight", at::Tensor(), /*requires_grad=*/false);
  }
  void set(at::Tensor tensor) {
    weight = tensor;
    parameters_["weight"] = std::move(tensor);
  }
  Matrix matrix() const { return {weight, shape.front()}; }
  at::Tensor weight;  ///< as the backend keeps it
  std::vector<std::int64_t> shape;
};
using Weight = std::shared_ptr<WeightModule>;

struct AttentionModule : torch::nn::Module {
  explicit AttentionModule(const ModelSizes& s);
  Weight q_proj, k_proj, v_proj, o_proj;
};

struct MlpModule : torch::nn::Module {
  explicit MlpModule(const ModelSizes& s);
  Weight gate_proj, up_proj, down_proj;
};

struct BlockModule : torch::nn::Module {
  explicit BlockModule(const ModelConfig& config);
  std::shared_ptr<AttentionModule> self_attn;
  std::shared_ptr<MlpModule> mlp;
  Weight input_layernorm;
  Weight post_attention_layernorm;  ///< plain: before the MLP; sandwich: on the attention's output
  Weight pre_feedforward_layernorm, post_feedforward_layernorm;  ///< sandwich only
};

struct BodyModule : torch::nn::Module {
  explicit BodyModule(const ModelConfig& config);
  Weight embed_tokens;
  std::vector<std::shared_ptr<BlockModule>> layers;
  Weight norm;
};

struct CausalLmModule : torch::nn::Module {
  explicit CausalLmModule(const ModelConfig& config);
  std::shared_ptr<BodyModule> model;
  Weight lm_head;  ///< null if tied
};

}  // namespace kvdiv
