#include "kvdiv/model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include "config_keys.h"
#include "config_reader.h"

namespace kvdiv {
namespace {

/// What an architecture is when config.json does not say otherwise: the class defaults of the reference (transformers
/// 5.24) and the traits that no key states. Sizes that the reference also defaults (hidden_size, …) must be stated.
struct Architecture {
  std::string_view name, model_type;
  std::int64_t n_kv_heads;    ///< without the key; 0: as many as heads
  bool kv_heads_may_be_null;  ///< null means as many as heads
  std::int64_t head_dim;      ///< without the key; 0: hidden / heads, also for null
  std::int64_t max_positions;
  WindowRule window;
  bool tied_head;
  TokenId bos, eos;
  bool is_gemma2;  ///< (1 + w) norms cast last, scaled embeddings, tanh-GELU, sandwich norms, caps
};

constexpr std::array kArchitectures{
    Architecture{
        "LlamaForCausalLM", "llama", 0, true, 0, 2048, {false, false, std::nullopt, false}, false, 1, 2, false},
    Architecture{"MistralForCausalLM", "mistral", 8, true, 0, 131072, {true, false, 4096, true}, false, 1, 2, false},
    Architecture{"Gemma2ForCausalLM", "gemma2", 4, false, 256, 8192, {true, true, 4096, false}, true, 2, 1, true},
};

constexpr double kDefaultEps = 1e-6;
// Far above every published model, and low enough that no product of sizes overflows 64 bits.
constexpr std::int64_t kMaxHidden = 1'000'000, kMaxIntermediate = 10'000'000, kMaxLayers = 10'000, kMaxHeads = 10'000,
                       kMaxHeadDim = 10'000, kMaxVocab = 100'000'000, kMaxPositions = std::int64_t{1} << 40;

std::string supported_names() {
  std::string names;
  for (const Architecture& row : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

const Architecture* find_architecture(std::string_view name, std::string_view Architecture::*field) {
  const auto it = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                               [&](const Architecture& row) { return row.*field == name; });
  return it == kArchitectures.end() ? nullptr : &*it;
}

[[noreturn]] void fail_architecture(const ConfigReader& reader, const char* key, const std::string& name) {
  if (name == "GemmaForCausalLM" || name == "gemma")
    fail_unreadable("{}: {} = {}: Gemma-1 is not supported: only Gemma-2 is; supported are {}", reader.file(), key,
                    name, supported_names());
  fail_unreadable("{}: {} = {}: not supported; supported are {}", reader.file(), key, short_name(name),
                  supported_names());
}

/// architectures[0], else model_type; if both are there they must agree.
const Architecture& read_architecture(const ConfigReader& reader) {
  const Json* type = reader.find_set("model_type");
  if (type != nullptr && !type->is_string()) reader.refuse("model_type", *type, "a text");
  const Json* list = reader.find_set("architectures");
  if (list != nullptr && !list->is_array()) reader.refuse("architectures", *list, "a list of texts");
  if (list == nullptr || list->empty()) {
    if (type == nullptr)
      fail_unreadable("{}: neither architectures nor model_type is given; supported are {}", reader.file(),
                      supported_names());
    const Architecture* row = find_architecture(type->get<std::string>(), &Architecture::model_type);
    if (row == nullptr) fail_architecture(reader, "model_type", type->get<std::string>());
    return *row;
  }
  if (!list->front().is_string()) reader.refuse("architectures", *list, "a list of texts");
  const Architecture* row = find_architecture(list->front().get<std::string>(), &Architecture::name);
  if (row == nullptr) fail_architecture(reader, "architectures", list->front().get<std::string>());
  if (type != nullptr && *type != row->model_type)
    reader.refuse("model_type", *type, fmt::format("\"{}\", as architectures says {}", row->model_type, row->name));
  return *row;
}

std::int64_t read_head_dim(const ConfigReader& reader, const Architecture& row, const ModelSizes& sizes) {
  const bool derive = row.head_dim == 0 && reader.find_set("head_dim") == nullptr;
  if (derive && sizes.hidden % sizes.n_heads != 0)
    fail_unreadable("{}: hidden_size {} is not a multiple of num_attention_heads {}, and head_dim is not given",
                    reader.file(), sizes.hidden, sizes.n_heads);
  const std::int64_t head_dim =
      derive ? sizes.hidden / sizes.n_heads : reader.size("head_dim", kMaxHeadDim, row.head_dim);
  if (head_dim % 2 != 0)
    fail_unreadable("{}: head_dim = {}: expected an even number: rotary embeddings turn pairs", reader.file(),
                    head_dim);
  return head_dim;
}

std::int64_t read_kv_heads(const ConfigReader& reader, const Architecture& row, std::int64_t n_heads) {
  const Json* value = reader.find("num_key_value_heads");
  const bool as_heads = value == nullptr ? row.n_kv_heads == 0 : value->is_null() && row.kv_heads_may_be_null;
  const std::int64_t n = as_heads ? n_heads : reader.size("num_key_value_heads", kMaxHeads, row.n_kv_heads);
  if (n_heads % n != 0)
    fail_unreadable("{}: num_key_value_heads = {}{}: expected a divisor of num_attention_heads, {}", reader.file(), n,
                    value == nullptr ? " (absent: the class default)" : "", n_heads);
  return n;
}

ModelSizes read_sizes(const ConfigReader& reader, const Architecture& row) {
  ModelSizes sizes;
  sizes.n_layers = reader.size("num_hidden_layers", kMaxLayers);
  sizes.hidden = reader.size("hidden_size", kMaxHidden);
  sizes.intermediate = reader.size("intermediate_size", kMaxIntermediate);
  sizes.vocab = reader.size("vocab_size", kMaxVocab);
  sizes.n_heads = reader.size("num_attention_heads", kMaxHeads);
  sizes.n_kv_heads = read_kv_heads(reader, row, sizes.n_heads);
  sizes.head_dim = read_head_dim(reader, row, sizes);
  sizes.max_positions = reader.size("max_position_embeddings", kMaxPositions, row.max_positions);
  return sizes;
}

/// Gemma-2 reads hidden_activation and never hidden_act; without it the default is the tanh form, which is also what
/// the "gelu" of hidden_act in older files means. Any other hidden_act contradicts that and is refused.
Activation read_activation(const ConfigReader& reader, bool is_gemma2) {
  const Json* value = reader.find_set("hidden_act");
  if (!is_gemma2) {
    if (reader.find("hidden_act") == nullptr) return Activation::silu;
    if (value == nullptr || (*value != "silu" && *value != "swish"))
      reader.refuse("hidden_act", *reader.find("hidden_act"), "\"silu\"");
    return Activation::silu;
  }
  if (const Json* activation = reader.find_set("hidden_activation")) {
    if (*activation != "gelu_pytorch_tanh") reader.refuse("hidden_activation", *activation, "\"gelu_pytorch_tanh\"");
  } else if (value != nullptr && *value != "gelu_pytorch_tanh" && *value != "gelu") {
    reader.refuse("hidden_act", *value, "\"gelu_pytorch_tanh\"");
  }
  return Activation::gelu_tanh;
}

/// A soft-cap: absent is the class default, null is none. Dividing by 0 would make every logit NaN.
std::optional<double> read_cap(const ConfigReader& reader, const char* key, double if_absent) {
  const Json* value = reader.find(key);
  if (value == nullptr) return if_absent;
  if (value->is_null()) return std::nullopt;
  if (!ConfigReader::is_positive(*value)) reader.refuse(key, *value, "a number above 0, or null for no cap");
  return value->get<double>();
}

double read_query_scale(const ConfigReader& reader, bool is_gemma2, std::int64_t head_dim) {
  // Powers as the reference writes them (x ** -0.5): 1/sqrt(x) can differ in the last bit.
  if (!is_gemma2) return std::pow(static_cast<double>(head_dim), -0.5);
  const Json* value = reader.find("query_pre_attn_scalar");
  if (value == nullptr) return std::pow(256.0, -0.5);
  if (!ConfigReader::is_positive(*value)) reader.refuse("query_pre_attn_scalar", *value, "a number above 0");
  return std::pow(value->get<double>(), -0.5);
}

Traits read_traits(const ConfigReader& reader, const Architecture& row, const ModelSizes& sizes, Warnings& warnings) {
  Traits traits;
  traits.activation = read_activation(reader, row.is_gemma2);
  traits.query_scale = read_query_scale(reader, row.is_gemma2, sizes.head_dim);
  traits.windows = read_windows(reader, row.window, sizes.n_layers, warnings);
  traits.tied_head = reader.boolean("tie_word_embeddings", row.tied_head);
  if (row.is_gemma2) {
    traits.norm_offset = 1.0;
    traits.norm_cast = NormCast::after_weight;
    traits.embedding_scale = std::pow(static_cast<double>(sizes.hidden), 0.5);
    traits.sandwich_norms = true;
    traits.attention_cap = read_cap(reader, "attn_logit_softcapping", 50.0);
    traits.final_cap = read_cap(reader, "final_logit_softcapping", 30.0);
  }
  return traits;
}

double read_eps(const ConfigReader& reader) {
  const Json* value = reader.find("rms_norm_eps");
  if (value == nullptr) return kDefaultEps;
  if (!value->is_number() || value->get<double>() < 0.0)
    reader.refuse("rms_norm_eps", *value, "a number of at least 0");
  return value->get<double>();
}

TokenId read_token(const ConfigReader& reader, const char* key, const Json& value, std::int64_t vocab) {
  const auto id = as_integer(value);
  if (!id || *id < 0 || *id >= vocab) reader.refuse(key, value, fmt::format("a token id from 0 to {}", vocab - 1));
  return *id;
}

std::vector<TokenId> read_eos(const ConfigReader& reader, std::int64_t vocab) {
  const Json* value = reader.find_set("eos_token_id");
  std::vector<TokenId> ids;
  if (value == nullptr) return ids;
  if (!value->is_array()) return {read_token(reader, "eos_token_id", *value, vocab)};
  std::unordered_set<TokenId> seen;  // the list may be as long as the file
  for (const Json& one : *value) {
    const TokenId id = read_token(reader, "eos_token_id", one, vocab);
    if (seen.insert(id).second) ids.push_back(id);
  }
  return ids;
}

/// generation_config.json decides if it names one, as in the reference; else config.json; else the class default.
void read_tokens(ModelConfig& model, const ConfigReader& reader, const ConfigReader& generation,
                 const Architecture& row) {
  const std::int64_t vocab = model.sizes.vocab;
  if (generation.find_set("eos_token_id") != nullptr)
    model.eos_ids = read_eos(generation, vocab);
  else if (reader.find("eos_token_id") != nullptr)
    model.eos_ids = read_eos(reader, vocab);
  else if (row.eos < vocab)
    model.eos_ids = {row.eos};
  const ConfigReader& source = generation.find_set("bos_token_id") != nullptr ? generation : reader;
  if (const Json* bos = source.find("bos_token_id"); bos == nullptr && row.bos < vocab)
    model.bos_id = row.bos;
  else if (bos != nullptr && !bos->is_null())
    model.bos_id = read_token(source, "bos_token_id", *bos, vocab);
}

/// Only reported: the compute dtype is a flag's, the stored one the tensors'.
std::string read_declared_dtype(const ConfigReader& reader) {
  const auto text = [](const Json* value) {
    return value == nullptr ? "" : value->is_string() ? short_name(value->get<std::string>()) : short_dump(*value);
  };
  const std::string now = text(reader.find_set("dtype")), old = text(reader.find_set("torch_dtype"));
  if (!now.empty() && !old.empty() && now != old) return fmt::format("{} (torch_dtype: {})", now, old);
  return now.empty() ? old : now;
}

}  // namespace

std::int64_t ModelConfig::n_params() const {
  const ModelSizes& s = sizes;
  const std::int64_t attention = 2 * s.hidden * s.head_dim * (s.n_heads + s.n_kv_heads);
  const std::int64_t norms = (traits.sandwich_norms ? 4 : 2) * s.hidden;
  const std::int64_t layer = attention + 3 * s.hidden * s.intermediate + norms;
  return s.n_layers * layer + s.hidden + (traits.tied_head ? 1 : 2) * s.vocab * s.hidden;
}

ModelConfig parse_model_config(const Json& config, const Json& generation_config, const std::string& file,
                               Warnings& warnings) {
  const std::string generation_file = "generation_config.json";
  if (!config.is_object()) fail_unreadable("{}: expected an object, found {}", file, short_dump(config));
  if (!generation_config.is_object())
    fail_unreadable("{}: expected an object, found {}", generation_file, short_dump(generation_config));
  const ConfigReader reader(config, file), generation(generation_config, generation_file);
  const Architecture& row = read_architecture(reader);
  ModelConfig model;
  model.architecture = row.name;
  check_config_keys(config, model.architecture, file, warnings);
  model.sizes = read_sizes(reader, row);
  model.traits = read_traits(reader, row, model.sizes, warnings);
  model.rope_theta = read_rope_theta(reader, warnings);
  model.rms_norm_eps = read_eps(reader);
  model.declared_dtype = read_declared_dtype(reader);
  read_tokens(model, reader, generation, row);
  return model;
}

}  // namespace kvdiv
