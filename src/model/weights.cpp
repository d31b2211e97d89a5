#include "kvdiv/model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isinf.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/model/dtype.h"

namespace kvdiv {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

/// Tensors that old exporters wrote and no run needs: rotary frequencies follow from the config.
bool is_ignored(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

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
      fail_unreadable(
          "tensor '{}': stored as {}; weights must be F64, F32, F16 or BF16 (quantized checkpoints are not supported)",
          view.info.name, name_of(view.info.dtype));
  }
}

std::string first_few(const std::vector<std::string>& names) {
  const auto shown = std::min<std::size_t>(names.size(), 4);
  std::string out =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

std::vector<NamedWeight> wanted_weights(const ModelConfig& config) {
  // Names and shapes do not depend on dtype or backend.
  return Decoder(config, DType::float32, make_ops("torch", "eager")).weights();
}

void check_shape(const Checkpoint& checkpoint, const TensorView& view, const std::vector<std::int64_t>& expected) {
  scalar_type_on_disk(view);
  if (view.info.shape != expected)
    fail_unreadable("{}: tensor '{}': shape [{}] on disk, [{}] by config.json", checkpoint.path().string(),
                    view.info.name, fmt::join(view.info.shape, ", "), fmt::join(expected, ", "));
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
  const TensorView* head = checkpoint.find(std::string(kHead));
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
  std::vector<std::string> missing, left_over;
  std::set<std::string> known;
  for (const NamedWeight& weight : wanted_weights(config)) {
    known.insert(weight.name);
    if (const TensorView* view = checkpoint.find(weight.name))
      check_shape(checkpoint, *view, weight.shape);
    else
      missing.push_back(weight.name);
  }
  for (const std::string& name : checkpoint.names())
    if (!known.contains(name) && !is_ignored(name) && !(config.traits.tied_head && name == kHead))
      left_over.push_back(name);
  const std::string where = checkpoint.path().string();
  if (missing == std::vector<std::string>{std::string(kHead)})
    fail_unreadable(
        "{}: no tensor 'lm_head.weight', and config.json does not tie it to the embedding; "
        "if the model ties them, set \"tie_word_embeddings\": true",
        where);
  if (!missing.empty()) fail_unreadable("{}: missing tensor {}", where, first_few(missing));
  if (!left_over.empty())
    fail_unreadable("{}: {} tensors that {} does not have: {}", where, left_over.size(), config.architecture,
                    first_few(left_over));
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

std::uint64_t weight_bytes(const ModelConfig& config, DType dtype) {
  return static_cast<std::uint64_t>(config.n_params()) * static_cast<std::uint64_t>(size_of(dtype));
}

}  // namespace kvdiv
