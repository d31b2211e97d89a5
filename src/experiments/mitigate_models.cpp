#include "mitigate_models.h"

#include <algorithm>
#include <utility>

#include "kvdiv/numerics/reduction.h"
#include "kvdiv/numerics/widened_ops.h"

namespace kvdiv {
namespace {

/// The backend with FP32 accumulators, where it has others: what computes with FP32 operands.
std::string with_float32_accumulators(const std::string& backend) {
  if (!backend.starts_with(kReductionPrefix)) return backend;
  Reductions reductions = parse_reductions(backend);
  reductions.prefill.accumulator = reductions.decode.accumulator = Accumulator::float32;
  return reductions.name();
}

void share_weights(Decoder& from, Decoder& to) {
  const std::vector<NamedWeight> have = from.weights(), want = to.weights();
  for (std::size_t i = 0; i < want.size(); ++i) *want[i].tensor = *have[i].tensor;
}

}  // namespace

Decoder decoder_over(Decoder& weights, DType dtype, std::shared_ptr<const Ops> ops) {
  Decoder decoder(weights.config(), dtype, std::move(ops), weights.device());
  share_weights(weights, decoder);
  return decoder;
}

Decoder routed_decoder(const OpsOf& usual, const OpsOf& fixed, OperationSet fixed_kinds) {
  const auto ops = std::make_shared<RoutedOps>(usual.ops, fixed.ops, fixed_kinds);
  Decoder decoder(usual.decoder.config(), usual.decoder.dtype(), ops, usual.decoder.device());
  const std::vector<NamedWeight> usual_weights = usual.decoder.weights(), fixed_weights = fixed.decoder.weights();
  const std::vector<NamedWeight> weights = decoder.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].shape.size() != 2) {  // a norm's: no backend packs it
      *weights[i].tensor = *usual_weights[i].tensor;
      continue;
    }
    const Operation kind = operation_of_matrix(weights[i].name);
    *weights[i].tensor = *(fixed_kinds.contains(kind) ? fixed_weights : usual_weights)[i].tensor;
    ops->assign(*weights[i].tensor, kind);
  }
  return decoder;
}

RemedyModels::RemedyModels(Context& context, const MitigateParams& params, ExperimentResult& result)
    : context_(context),
      dtype_(params.dtype.front()),
      backend_(params.backend.front()),
      attention_(params.attention),
      result_(result) {}

Decoder RemedyModels::load(DType dtype, const std::string& backend, const std::string& attention) {
  LoadedModel model = context_.load(dtype, backend, attention);
  result_.extra["cast"][std::string(name_of(dtype))] = to_json_value(model.cast);
  return std::move(model.decoder);
}

std::shared_ptr<const Ops> RemedyModels::ops_of(const std::string& backend) const {
  return make_ops(backend, attention_, context_.device);
}

Decoder RemedyModels::make(Arithmetic arithmetic) {
  const std::string wide = with_float32_accumulators(backend_);
  const auto over_base = [&](DType dtype, std::shared_ptr<const Ops> ops) {
    of(Arithmetic::base);
    return decoder_over(decoders_.at(Arithmetic::base), dtype, std::move(ops));
  };
  switch (arithmetic) {
    case Arithmetic::base:
      return load(dtype_, backend_, attention_);
    case Arithmetic::float32_attention:
      return over_base(dtype_, float32_attention(ops_of(backend_), ops_of(wide)));
    case Arithmetic::float32_accumulation:
      return over_base(dtype_, float32_accumulation(ops_of(wide)));
    case Arithmetic::float32_arithmetic:
      return over_base(DType::float32, float32_arithmetic(ops_of(wide)));
    case Arithmetic::no_split_k:
      return over_base(dtype_, make_ops("cublaslt:no-split-k", "eager", context_.device));
    case Arithmetic::one_algorithm:
      return over_base(dtype_, make_ops("cublaslt:one-algorithm", "eager", context_.device));
    case Arithmetic::invariant:
      return load(dtype_, "invariant", "eager");
    case Arithmetic::bfloat16:
      return load(DType::bfloat16, backend_, attention_);
    case Arithmetic::float32:
      return load(DType::float32, wide, attention_);
  }
  fail(ErrorKind::internal, "an arithmetic without a model");
}

const Decoder& RemedyModels::of(Arithmetic arithmetic) {
  const auto known = decoders_.find(arithmetic);
  if (known != decoders_.end()) return known->second;
  Decoder decoder = make(arithmetic);
  // The first call loads kernels and touches every weight; speeds are of the calls after it.
  const auto& prompt = context_.prompts.front().ids;
  KvCache cache = decoder.make_cache(std::ssize(prompt) + 1);
  decoder.forward(prompt, &cache);
  decoder.forward(std::span(prompt).first(1), &cache);
  return decoders_.emplace(arithmetic, std::move(decoder)).first->second;
}

void RemedyModels::drop() {
  std::erase_if(decoders_, [](const auto& entry) { return is_loaded_apart(entry.first); });
}

OpsOf RemedyModels::usual() {
  of(Arithmetic::base);
  return {decoders_.at(Arithmetic::base), ops_of(backend_)};
}

OpsOf RemedyModels::invariant() {
  of(Arithmetic::invariant);
  return {decoders_.at(Arithmetic::invariant), make_ops("invariant", "eager", context_.device)};
}

bool is_loaded_apart(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::invariant || arithmetic == Arithmetic::bfloat16 || arithmetic == Arithmetic::float32;
}

std::vector<std::vector<const Remedy*>> groups_that_fit(const std::vector<Remedy>& remedies, const ModelConfig& config,
                                                        DType base, std::int64_t length, std::uint64_t available) {
  std::map<Arithmetic, std::uint64_t> apart;
  std::uint64_t largest = 0;
  for (const Remedy& r : remedies) {
    const RemedyBytes bytes = bytes_of(r, config, base, length);
    if (is_loaded_apart(r.kind->arithmetic)) apart[r.kind->arithmetic] = bytes.weights;
    largest = std::max(largest, bytes.peak - bytes.weights);
  }
  std::uint64_t need = weight_bytes(config, base) + largest;
  for (const auto& [arithmetic, bytes] : apart) need += bytes;
  const bool all_fit = need <= available;
  std::map<Arithmetic, std::vector<const Remedy*>> groups;
  for (const Remedy& r : remedies) {
    const Arithmetic a = r.kind->arithmetic;
    groups[!all_fit && is_loaded_apart(a) ? a : Arithmetic::base].push_back(&r);
  }
  std::vector<std::vector<const Remedy*>> out;
  for (auto& [arithmetic, group] : groups) out.push_back(std::move(group));
  return out;
}

}  // namespace kvdiv
