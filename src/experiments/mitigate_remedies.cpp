#include "mitigate_remedies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "kvdiv/model/memory.h"

namespace kvdiv {
namespace {

constexpr std::array<RemedyKind, 14> kKinds{{
    {"none", "what is to be remedied: the dtype and backend of the run"},
    {"cache-float32", "the cache in FP32; K and V come rounded out of 16-bit products", Arithmetic::base,
     CacheForm::float32},
    {"attention-float32", "cache and attention in FP32, the rest in 16 bits", Arithmetic::float32_attention,
     CacheForm::as_computed},
    {"float32-accumulation", "every product summed in FP32 and rounded once when stored",
     Arithmetic::float32_accumulation},
    {"invariant", "every sum in one order, whatever the number of rows", Arithmetic::invariant},
    {"refresh", "every N tokens the cache is replaced by a fresh prefill's", Arithmetic::base, CacheForm::refreshed,
     ":8"},
    {"smooth", "every N tokens the cache goes a share A of the way to a fresh prefill's", Arithmetic::base,
     CacheForm::refreshed, ":8:0.5"},
    {"float32-arithmetic", "weights in 16 bits, widened layer by layer; all else in FP32",
     Arithmetic::float32_arithmetic},
    {"bfloat16", "weights, cache and arithmetic in BF16", Arithmetic::bfloat16},
    {"float32", "weights, cache and arithmetic in FP32", Arithmetic::float32},
    {"kv-int8", "the cache in 8-bit integers, an FP16 scale a group of 32", Arithmetic::base, CacheForm::int8},
    {"kv-int4", "the cache in 4-bit integers, an FP16 scale a group of 32", Arithmetic::base, CacheForm::int4},
    {"cublaslt-no-split-k", "products by cuBLASLt, never with K cut into pieces (GPU)", Arithmetic::no_split_k,
     CacheForm::as_computed, "", true},
    {"cublaslt-one-algorithm", "products by one of cuBLASLt's algorithms for all numbers of rows (GPU)",
     Arithmetic::one_algorithm, CacheForm::as_computed, "", true},
}};

const RemedyKind* find_kind(std::string_view name) {
  const auto it = std::find_if(kKinds.begin(), kKinds.end(), [&](const RemedyKind& k) { return k.name == name; });
  return it == kKinds.end() ? nullptr : &*it;
}

/// The whole text as a number, or nothing.
template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void read_arguments(Remedy& remedy, const std::vector<std::string>& parts) {
  const auto n = std::count(remedy.kind->arguments.begin(), remedy.kind->arguments.end(), ':');
  if (std::ssize(parts) != n + 1)
    fail_usage("--remedy: '{}' takes {} argument{} behind ':'{}", remedy.kind->name, n, n == 1 ? "" : "s",
               n > 0 ? fmt::format(", as in {}{}", remedy.kind->name, remedy.kind->arguments) : std::string());
  if (n >= 1) {
    remedy.interval = number_in<std::int64_t>(parts[1]).value_or(0);
    if (remedy.interval < 1)
      fail_usage("--remedy {}: '{}' is not a number of tokens (1 or more)", remedy.name, parts[1]);
  }
  if (n >= 2) {
    remedy.weight = number_in<double>(parts[2]).value_or(NAN);
    if (!(remedy.weight >= 0.0 && remedy.weight <= 1.0))
      fail_usage("--remedy {}: '{}' is not a share from 0 to 1", remedy.name, parts[2]);
  }
}

/// What is computed with between products: FP32 wherever an operand is widened.
DType activations_dtype(Arithmetic arithmetic, DType base) {
  const bool is_widened = arithmetic == Arithmetic::float32_attention || arithmetic == Arithmetic::float32_accumulation;
  return is_widened ? DType::float32 : compute_dtype(arithmetic, base);
}

std::uint64_t largest_matrix(const ModelSizes& s) {
  return static_cast<std::uint64_t>(std::max({s.vocab, s.intermediate, s.n_heads * s.head_dim}) * s.hidden);
}

/// FP32 copies that one call makes of what is kept in 16 bits: a matrix, or the keys and values of a layer.
std::uint64_t widened_bytes(Arithmetic arithmetic, const ModelConfig& config, std::int64_t length) {
  const std::uint64_t layer = KvCache::n_bytes(config, DType::float32, length) /
                              static_cast<std::uint64_t>(std::max<std::int64_t>(1, config.sizes.n_layers));
  switch (arithmetic) {
    case Arithmetic::float32_attention:
      return layer;
    case Arithmetic::float32_accumulation:
      return std::max(layer, 4 * largest_matrix(config.sizes));
    case Arithmetic::float32_arithmetic:
      return 4 * largest_matrix(config.sizes);
    default:
      return 0;
  }
}

std::uint64_t cache_bytes(const Remedy& remedy, const ModelConfig& config, DType base, std::int64_t length) {
  switch (remedy.kind->cache) {
    case CacheForm::float32:
      return KvCache::n_bytes(config, DType::float32, length);
    case CacheForm::int8:
      return quantized_cache_bytes(config, 8, length);
    case CacheForm::int4:
      return quantized_cache_bytes(config, 4, length);
    default:
      const bool is_wide = remedy.kind->arithmetic == Arithmetic::float32_attention;
      return KvCache::n_bytes(config, is_wide ? DType::float32 : compute_dtype(remedy.kind->arithmetic, base), length);
  }
}

}  // namespace

std::vector<std::string> remedy_names() {
  std::vector<std::string> names;
  for (const RemedyKind& k : kKinds) names.push_back(fmt::format("{}{}", k.name, k.arguments));
  return names;
}

Remedy parse_remedy(const std::string& name) {
  const std::vector<std::string> parts = split(name, ':');
  Remedy remedy;
  remedy.name = name;
  remedy.kind = find_kind(parts.front());
  if (remedy.kind == nullptr) {
    std::vector<std::string> known;
    for (const RemedyKind& k : kKinds) known.emplace_back(k.name);
    fail_usage("--remedy: '{}' is not known{} (available: {})", name, did_you_mean(parts.front(), known),
               fmt::join(remedy_names(), ", "));
  }
  if (parts.size() == 1 && !remedy.kind->arguments.empty())
    return parse_remedy(fmt::format("{}{}", name, remedy.kind->arguments));
  read_arguments(remedy, parts);
  return remedy;
}

std::vector<Remedy> remedies_of(const MitigateParams& params) {
  std::vector<Remedy> out{parse_remedy("none")};
  std::set<std::string> names;
  for (const std::string& list : params.remedy)
    for (const std::string& name : split(list, ',')) {
      Remedy remedy = parse_remedy(name);
      if (!names.insert(remedy.name).second) fail_usage("--remedy: '{}' is given twice", remedy.name);
      if (remedy.name != "none") out.push_back(std::move(remedy));
    }
  return out;
}

std::vector<Remedy> remedies_on(c10::Device device, const MitigateParams& params) {
  std::vector<Remedy> out = remedies_of(params);
  if (!device.is_cpu()) return out;
  const auto missing = [](const Remedy& r) { return r.kind->needs_gpu; };
  if (params.remedy == remedy_names()) std::erase_if(out, missing);
  if (const auto named = std::find_if(out.begin(), out.end(), missing); named != out.end())
    fail_usage("--remedy {}: only a GPU has it; use it with --device cuda", named->name);
  return out;
}

void require_remedies(c10::Device device, const MitigateParams& params) { remedies_on(device, params); }

std::unique_ptr<CacheRemedy> Remedy::for_cache(const ModelConfig& config, std::int64_t capacity) const {
  switch (kind->cache) {
    case CacheForm::as_computed:
      return nullptr;
    case CacheForm::float32:
      return float32_cache(config, capacity);
    case CacheForm::refreshed:
      return refreshed_cache(interval, weight);
    case CacheForm::int8:
      return quantized_cache(8);
    case CacheForm::int4:
      return quantized_cache(4);
  }
  return nullptr;
}

DType compute_dtype(Arithmetic arithmetic, DType base) {
  if (arithmetic == Arithmetic::bfloat16) return DType::bfloat16;
  return arithmetic == Arithmetic::float32 || arithmetic == Arithmetic::float32_arithmetic ? DType::float32 : base;
}

DType weights_dtype(Arithmetic arithmetic, DType base) {
  return arithmetic == Arithmetic::float32_arithmetic ? base : compute_dtype(arithmetic, base);
}

RemedyBytes bytes_of(const Remedy& remedy, const ModelConfig& config, DType base, std::int64_t length) {
  const Arithmetic arithmetic = remedy.kind->arithmetic;
  const MemoryNeed need = memory_need(config, activations_dtype(arithmetic, base), length);
  RemedyBytes bytes;
  bytes.weights = weight_bytes(config, weights_dtype(arithmetic, base));
  bytes.cache = cache_bytes(remedy, config, base, length);
  bytes.peak = bytes.weights + bytes.cache + need.activations + need.logits;
  bytes.peak += widened_bytes(arithmetic, config, length);
  if (remedy.kind->cache == CacheForm::refreshed) bytes.peak += need.cache;  // the fresh one
  // What attention reads of a cache that is stored in another form: one layer at a time.
  if (remedy.kind->cache != CacheForm::as_computed && remedy.kind->cache != CacheForm::refreshed)
    bytes.peak += need.cache / static_cast<std::uint64_t>(std::max<std::int64_t>(1, config.sizes.n_layers));
  return bytes;
}

void validate(const MitigateParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  if (params.dtype.size() != 1 || (params.dtype.front() != DType::float16 && params.dtype.front() != DType::bfloat16))
    fail_usage(
        "--dtype: mitigate takes one dtype, float16 or bfloat16: what "
        "is wider is among the remedies");
  if (params.backend.size() != 1) fail_usage("--backend: mitigate takes one: what the remedies are remedies of");
  if (params.remedy.empty()) fail_usage("--remedy: the list is empty");
  remedies_of(params);  // refuses what is no remedy
  if (params.max_steps < 2)
    fail_usage("--max-steps: {} is less than 2: the arms first differ at step 1", params.max_steps);
  if (!std::isfinite(params.max_kl) || params.max_kl < 0.0)
    fail_usage("--max-kl: {} is not a limit in nats (finite, 0 or more)", params.max_kl);
  if (params.max_subsets < 0) fail_usage("--max-subsets: {} is negative", params.max_subsets);
}

}  // namespace kvdiv
