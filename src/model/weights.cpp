#include "kvdiv/model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isinf.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

#include "kvdiv/base/error.h"
#include "kvdiv/model/dtype.h"
#include "weights_check.h"

namespace kvdiv {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

c10::ScalarType scalar_type_on_disk(const TensorView& view) {
  switch (view.info.dtype) {
    case DiskDType::f64:
      return at::kDouble;
    case DiskDType::f32:
      return at::kFloat;
    case DiskDType::f16:
      return at::kHalf;
    case DiskDType::bf16:
      return at::kBFloat16;
    default:
      fail(ErrorKind::internal, "tensor '{}' was not checked before it was read", view.info.name);
  }
}

std::vector<WantedWeight> wanted_weights(const ModelConfig& config) {
  // Names and shapes do not depend on dtype or backend.
  std::vector<WantedWeight> wanted;
  for (NamedWeight& weight : Decoder(config, DType::float32, make_ops("torch", "eager")).weights())
    wanted.push_back({std::move(weight.name), std::move(weight.shape)});
  return wanted;
}

/// The bytes on disk as a tensor with memory of its own: a mapped tensor may lie at any address. To a GPU they go straight
/// from the mapped file.
at::Tensor copy_from_disk(const TensorView& view, c10::Device device) {
  if (!device.is_cpu()) {
    const auto options = at::TensorOptions().dtype(scalar_type_on_disk(view));
    // from_blob wants a pointer that may be written through; it is only read.
    return at::from_blob(const_cast<void*>(static_cast<const void*>(view.data)), view.info.shape, options).to(device);
  }
  at::Tensor raw = at::empty(view.info.shape, at::TensorOptions().dtype(scalar_type_on_disk(view)));
  if (raw.nbytes() != 0) std::memcpy(raw.mutable_data_ptr(), view.data, raw.nbytes());
  return raw;
}

/// The tensor in the compute dtype, with room behind it (see kWeightSlack).
at::Tensor cast_counted(const at::Tensor& raw, c10::ScalarType dtype, CastCounts& counts) {
  const at::Tensor memory = at::empty({raw.numel() + kWeightSlack}, raw.options().dtype(dtype));
  const at::Tensor cast = memory.narrow(0, 0, raw.numel()).view(raw.sizes());
  cast.copy_(raw);
  const bool narrows =
      raw.scalar_type() != dtype && (dtype == at::kHalf || (dtype == at::kBFloat16 && raw.scalar_type() != at::kHalf) ||
                                     raw.scalar_type() == at::kDouble);
  if (!narrows) return cast;
  const auto count = [](const at::Tensor& mask) { return mask.sum().item().toLong(); };
  counts.overflow += count(cast.isinf()) - count(raw.isinf());
  counts.flushed_to_zero += count(cast.eq(0)) - count(raw.eq(0));
  return cast;
}

/// A head that is on disk though the config ties it: the embedding is used; a difference is worth a warning.
void compare_tied_head(const Checkpoint& checkpoint, Warnings& warnings) {
  const TensorView* head = checkpoint.find(std::string(kHeadName));
  const TensorView* embedding = checkpoint.find(std::string(kEmbedding));
  if (head == nullptr || embedding == nullptr) return;
  const std::size_t n_bytes = head->info.end - head->info.begin;
  const bool equal = head->info.dtype == embedding->info.dtype && head->info.shape == embedding->info.shape &&
                     std::memcmp(head->data, embedding->data, n_bytes) == 0;
  checkpoint.drop(*head);
  checkpoint.drop(*embedding);
  if (!equal)
    warnings.add(WarningCode::head_differs_from_embedding,
                 "lm_head.weight is stored though tie_word_embeddings is true, and it differs from the embedding");
}

void warn_of_casts(const CastCounts& counts, DType dtype, Warnings& warnings) {
  if (counts.overflow > 0)
    warnings.add(WarningCode::cast_overflow,
                 fmt::format("{} weights became infinite when cast to {}", counts.overflow, name_of(dtype)));
  if (counts.flushed_to_zero > 0)
    warnings.add(WarningCode::cast_flushed_to_zero, fmt::format("{} non-zero weights became zero when cast to {}",
                                                                counts.flushed_to_zero, name_of(dtype)));
}

}  // namespace

void check_checkpoint(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::vector<const TensorInfo*> found;
  for (const std::string& name : checkpoint.names()) found.push_back(&checkpoint.find(name)->info);
  check_weights(wanted_weights(config), found, config, checkpoint.path().string());
}

LoadedModel load_model(const Checkpoint& checkpoint, const ModelConfig& config, DType dtype,
                       std::shared_ptr<const Ops> ops, Warnings& warnings, c10::Device device) {
  const c10::InferenceMode inference;
  check_checkpoint(checkpoint, config);
  LoadedModel model{Decoder(config, dtype, std::move(ops), device), {}};
  for (const NamedWeight& weight : model.decoder.weights()) {
    const TensorView* view = checkpoint.find(weight.name);
    model.decoder.put(weight, cast_counted(copy_from_disk(*view, device), scalar_type(dtype), model.cast));
    checkpoint.drop(*view);
  }
  if (config.traits.tied_head) compare_tied_head(checkpoint, warnings);
  warn_of_casts(model.cast, dtype, warnings);
  return model;
}

}  // namespace kvdiv
