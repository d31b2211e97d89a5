#include "kvdiv/model/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <map>
#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/model/mask.h"
#include "kvdiv/model/rotary.h"
#include "modules.h"

namespace kvdiv {
namespace {

/// The mask of a call whose tokens see each other whatever their order: the window alone hides keys.
at::Tensor window_only(std::int64_t first_query, std::int64_t T, std::int64_t first_key, std::int64_t S,
                       std::optional<std::int64_t> window) {
  at::Tensor mask_TS = at::empty({T, S}, at::TensorOptions().dtype(at::kBool));
  bool* out = mask_TS.mutable_data_ptr<bool>();
  for (std::int64_t query = first_query; query < first_query + T; ++query)
    for (std::int64_t key = first_key; key < first_key + S; ++key)
      *out++ = key > query || is_visible(query, key, window);
  return mask_TS;
}

/// The tensor in new memory, and all of its old one with it (rows may be padded), `offset` elements further on.
at::Tensor moved_there(const at::Tensor& tensor, std::int64_t offset) {
  const auto n = static_cast<std::int64_t>(tensor.storage().nbytes()) / tensor.element_size();
  const at::Tensor old = tensor.as_strided({n}, {1}, 0);
  at::Tensor all = at::empty({n + offset}, tensor.options());
  all.narrow(0, offset, n).copy_(old);
  return all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset() + offset);
}

/// What one forward call shares between layers.
struct Call {
  std::int64_t first_position = 0, T = 0;
  c10::Device device = c10::kCPU;
  RotaryTable rotary;
  KvCache* cache = nullptr;
  Tap* tap = nullptr;
  bool causal = true;
  /// Masks by (first key, number of keys, window): layers of one kind share one.
  mutable std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, at::Tensor> masks = {};

  const at::Tensor& mask(std::int64_t first_key, std::int64_t S, std::optional<std::int64_t> window) const {
    const auto [it, is_new] = masks.try_emplace({first_key, S, window.value_or(0)});
    if (is_new)
      it->second = causal ? visibility(first_position, T, first_key, S, window, device)
                          : window_only(first_position, T, first_key, S, window).to(device);
    return it->second;
  }
};

at::Tensor last_position(const at::Tensor& x_BTC) { return x_BTC.narrow(1, x_BTC.size(1) - 1, 1); }

RotaryTable last_position(const RotaryTable& table) {
  const std::int64_t last = table.cos_11TD.size(2) - 1;
  return {table.cos_11TD.narrow(2, last, 1), table.sin_11TD.narrow(2, last, 1)};
}

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  DType dtype;
  std::shared_ptr<const Ops> ops;
  c10::Device device;
  std::shared_ptr<CausalLmModule> root;
  Rotary rotary;
  AttentionParams attention_params;
  NormParams norm_params;
  at::Tensor embedding_scale;  ///< 0-dim, compute dtype; undefined without one

  Impl(const ModelConfig& c, DType d, std::shared_ptr<const Ops> o, c10::Device where);

  at::Tensor norm(const at::Tensor& x_BTC, const Weight& w) const {
    return ops->rms_norm(x_BTC, w->weight, norm_params);
  }
  at::Tensor rotate(const at::Tensor& x_BHTD, const RotaryTable& table) const {
    return ops->rotate(x_BHTD, table.cos_11TD, table.sin_11TD);
  }
  at::Tensor linear(const at::Tensor& x_BTK, const Weight& w) const { return ops->linear(x_BTK, w->matrix()); }

  at::Tensor embed(const at::Tensor& ids_BT) const;
  bool last_row_is_enough(const Call& call, std::int64_t layer) const;
  at::Tensor attend(const AttentionModule& m, const at::Tensor& x_BTC, const Call& call, std::int64_t layer) const;
  at::Tensor mlp(const MlpModule& m, const at::Tensor& x_BTC, TapPoint tap) const;
  at::Tensor block(const BlockModule& m, at::Tensor x_BTC, const Call& call, std::int64_t layer) const;
  at::Tensor head(const at::Tensor& x_BTC, TapPoint tap) const;
};

Decoder::Impl::Impl(const ModelConfig& c, DType d, std::shared_ptr<const Ops> o, c10::Device where)
    : config(c),
      dtype(d),
      ops(std::move(o)),
      device(where),
      root(std::make_shared<CausalLmModule>(c)),
      rotary(c, d, ops->place_invariant() ? RotaryTables::shape_independent : RotaryTables::reference, where) {
  const Traits& t = config.traits;
  attention_params = {t.query_scale, t.attention_cap, 0};
  norm_params = {config.rms_norm_eps, t.norm_offset, t.norm_cast == NormCast::before_weight};
  if (t.embedding_scale) {
    // As in the reference: the scale is an FP32 number first, then rounded to the compute dtype (√3072 is 55.5 in BF16).
    const at::Tensor scale = at::scalar_tensor(*t.embedding_scale, at::TensorOptions().dtype(at::kDouble));
    embedding_scale = d == DType::float64 ? scale : scale.to(at::kFloat).to(scalar_type(d));
  }
}

at::Tensor Decoder::Impl::embed(const at::Tensor& ids_BT) const {
  const at::Tensor x_BTC = ops->rows(root->model->embed_tokens->matrix(), ids_BT);
  return embedding_scale.defined() ? at::mul(x_BTC, embedding_scale) : x_BTC;
}

/// Of the last layer, only the last position's output is read. To leave the others out changes the number of rows, and so
/// must not change bits; and a tap that looks into the layer is shown all of it.
bool Decoder::Impl::last_row_is_enough(const Call& call, std::int64_t layer) const {
  return ops->row_invariant() && layer + 1 == config.sizes.n_layers && call.T > 1 &&
         (call.tap == nullptr || !wants_any(*call.tap, layer));
}

at::Tensor Decoder::Impl::attend(const AttentionModule& m, const at::Tensor& x_BTC, const Call& call,
                                 std::int64_t layer) const {
  const TapPoint tap{call.tap, layer};
  const auto heads = [&](const at::Tensor& rows_BTC, const Weight& w, Site site) {
    return tap(site, linear(rows_BTC, w).view({1, rows_BTC.size(1), -1, config.sizes.head_dim}).transpose(1, 2));
  };
  const bool last_only = last_row_is_enough(call, layer);
  const at::Tensor q_BHTD = heads(last_only ? last_position(x_BTC) : x_BTC, m.q_proj, Site::query);
  const at::Tensor k_BGTD = heads(x_BTC, m.k_proj, Site::key);
  const at::Tensor v_BGTD = heads(x_BTC, m.v_proj, Site::value);
  const at::Tensor q = tap(Site::query_rotary, rotate(q_BHTD, last_only ? last_position(call.rotary) : call.rotary));
  const at::Tensor k = tap(Site::key_rotary, rotate(k_BGTD, call.rotary));
  const auto window = config.traits.windows[static_cast<std::size_t>(layer)];
  const KvCache::View kv = call.cache != nullptr ? call.cache->append(layer, k, v_BGTD, window)
                                                 : KvCache::View{k, v_BGTD, call.first_position};
  const at::Tensor keys = tap(Site::keys, kv.keys_BGSD);
  const at::Tensor values = tap(Site::values, kv.values_BGSD);
  at::Tensor visible_TS = call.mask(kv.first_position, keys.size(2), window);
  if (last_only && visible_TS.defined()) visible_TS = visible_TS.narrow(0, call.T - 1, 1);
  AttentionParams params = attention_params;
  params.first_key = kv.first_position;
  return tap(Site::attention_out, linear(ops->attention(q, keys, values, visible_TS, params, tap), m.o_proj));
}

at::Tensor Decoder::Impl::mlp(const MlpModule& m, const at::Tensor& x_BTC, TapPoint tap) const {
  const at::Tensor gate_BTF = tap(Site::gate, linear(x_BTC, m.gate_proj));
  const at::Tensor up_BTF = tap(Site::up, linear(x_BTC, m.up_proj));
  const at::Tensor product_BTF = ops->gated(gate_BTF, up_BTF, config.traits.activation);
  return tap(Site::mlp_out, linear(tap(Site::mlp_product, product_BTF), m.down_proj));
}

at::Tensor Decoder::Impl::block(const BlockModule& m, at::Tensor x_BTC, const Call& call, std::int64_t layer) const {
  const TapPoint tap{call.tap, layer};
  const bool sandwich = config.traits.sandwich_norms;
  at::Tensor y_BTC = attend(*m.self_attn, tap(Site::attention_norm, norm(x_BTC, m.input_layernorm)), call, layer);
  if (sandwich) y_BTC = tap(Site::attention_post_norm, norm(y_BTC, m.post_attention_layernorm));
  if (last_row_is_enough(call, layer)) x_BTC = last_position(x_BTC);
  x_BTC = tap(Site::attention_residual, x_BTC + y_BTC);
  const Weight& before_mlp = sandwich ? m.pre_feedforward_layernorm : m.post_attention_layernorm;
  y_BTC = mlp(*m.mlp, tap(Site::mlp_norm, norm(x_BTC, before_mlp)), tap);
  if (sandwich) y_BTC = tap(Site::mlp_post_norm, norm(y_BTC, m.post_feedforward_layernorm));
  return tap(Site::block, x_BTC + y_BTC);
}

at::Tensor Decoder::Impl::head(const at::Tensor& x_BTC, TapPoint tap) const {
  const at::Tensor normed = tap(Site::final_norm, norm(x_BTC, root->model->norm));
  // The last position only (the reference's logits_to_keep=1): nothing else is needed, and the row count decides bits.
  at::Tensor logits = linear(last_position(normed), root->lm_head ? root->lm_head : root->model->embed_tokens);
  if (const auto cap = config.traits.final_cap) logits = ops->soft_cap(logits, *cap);
  return tap(Site::logits, logits);
}

Decoder::Decoder(const ModelConfig& config, DType dtype, std::shared_ptr<const Ops> ops, c10::Device device) {
  const std::string reason = ops->unsupported({config.traits.attention_cap.has_value()});
  if (!reason.empty()) fail_usage("{} ({})", reason, config.architecture);
  const c10::InferenceMode inference;
  impl_ = std::make_shared<Impl>(config, dtype, std::move(ops), device);
}
Decoder::~Decoder() = default;
Decoder::Decoder(const Decoder&) = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(const Decoder&) = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

const ModelConfig& Decoder::config() const { return impl_->config; }
DType Decoder::dtype() const { return impl_->dtype; }
c10::Device Decoder::device() const { return impl_->device; }
const Ops& Decoder::ops() const { return *impl_->ops; }

KvCache Decoder::make_cache(std::int64_t capacity) const {
  return {impl_->config, impl_->dtype, capacity, impl_->device};
}

std::vector<NamedWeight> Decoder::weights() {
  std::vector<NamedWeight> out;
  for (const auto& item : impl_->root->named_modules("", /*include_self=*/false))
    if (auto* leaf = item.value()->as<WeightModule>())
      out.push_back({item.key() + ".weight", leaf->shape, &leaf->weight});
  return out;
}

at::Tensor Decoder::plain(const NamedWeight& weight) const {
  return weight.shape.size() == 2 ? impl_->ops->unpack(weight.matrix()) : *weight.tensor;
}

void Decoder::put(const NamedWeight& weight, at::Tensor plain) {
  *weight.tensor = weight.shape.size() == 2 ? impl_->ops->pack(plain) : std::move(plain);
}

Decoder Decoder::changed(const ModelConfig& config) const {
  Decoder out(config, impl_->dtype, impl_->ops, impl_->device);
  out.impl_->root = impl_->root;
  return out;
}

at::Tensor Decoder::forward(std::span<const TokenId> tokens, KvCache* cache, Tap* tap,
                            const Departure& departure) const {
  const c10::InferenceMode inference;
  at::Tensor ids_BT = at::empty({1, std::ssize(tokens)}, at::TensorOptions().dtype(at::kLong));
  std::copy(tokens.begin(), tokens.end(), ids_BT.mutable_data_ptr<std::int64_t>());
  return forward_ids(ids_BT.to(impl_->device), cache, tap, departure);
}

at::Tensor Decoder::forward_ids(const at::Tensor& ids_BT, KvCache* cache, Tap* tap, const Departure& departure) const {
  const c10::InferenceMode inference;
  Call call;
  call.first_position = cache != nullptr ? cache->length() : 0;
  call.T = ids_BT.size(1);
  call.device = impl_->device;
  call.rotary = impl_->rotary.at_positions(departure.rotary_first.value_or(call.first_position), call.T);
  call.cache = cache;
  call.tap = tap;
  call.causal = departure.causal;
  at::Tensor x_BTC = TapPoint{tap, 0}(Site::embedding, impl_->embed(ids_BT));
  const auto& layers = impl_->root->model->layers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    x_BTC = impl_->block(*layers[i], x_BTC, call, static_cast<std::int64_t>(i));
  if (cache != nullptr) cache->advance(call.T);
  return impl_->head(x_BTC, TapPoint{tap, static_cast<std::int64_t>(layers.size())}).reshape({-1});
}

void Decoder::realign_weights(std::int64_t offset_bytes) {
  const c10::InferenceMode inference;
  for (const NamedWeight& w : weights()) {
    at::Tensor& tensor = *w.tensor;
    const auto offset = offset_bytes / static_cast<std::int64_t>(tensor.element_size());
    if (!tensor.is_cpu()) {
      tensor = moved_there(tensor, offset);
      continue;
    }
    const auto n_bytes = static_cast<std::int64_t>(tensor.nbytes());
    const auto room = static_cast<std::int64_t>(tensor.storage().nbytes()) - n_bytes;
    if (room < offset_bytes)  // a weight that load_model did not make
      tensor = at::empty({tensor.numel() + kWeightSlack}, tensor.options())
                   .narrow(0, 0, tensor.numel())
                   .view(tensor.sizes())
                   .copy_(tensor);
    auto* begin = static_cast<char*>(tensor.storage().mutable_data());
    std::memmove(begin + offset_bytes, tensor.data_ptr(), static_cast<std::size_t>(n_bytes));
    tensor = tensor.as_strided(tensor.sizes(), tensor.strides(), offset);
  }
}

}  // namespace kvdiv
