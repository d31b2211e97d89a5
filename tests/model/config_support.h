#pragma once
// Toy configs, and what parsing them gives or refuses.
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/model/config.h"

namespace kvdiv::test {

inline Json published(const std::string& name) {
  std::ifstream in(std::string(KVDIV_TEST_ROOT) + "/tests/corpus/configs/" + name);
  return Json::parse(in);
}

enum class Family { llama, mistral, gemma2 };

/// A toy of the family: hidden 48, 4 heads of 12, 2 KV heads, 3 layers; only what must be stated.
inline Json toy(Family family) {
  static constexpr const char* kNames[] = {"LlamaForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM"};
  static constexpr const char* kTypes[] = {"llama", "mistral", "gemma2"};
  const auto i = static_cast<std::size_t>(family);
  return {{"architectures", {kNames[i]}}, {"model_type", kTypes[i]}, {"hidden_size", 48},
          {"intermediate_size", 64},      {"num_hidden_layers", 3},  {"num_attention_heads", 4},
          {"num_key_value_heads", 2},     {"vocab_size", 300},       {"head_dim", 12}};
}

inline Json with(Json config, const Json& changes) {
  config.update(changes);
  return config;
}
inline Json without(Json config, const char* key) {
  config.erase(key);
  return config;
}

struct Parsed {
  ModelConfig model;
  std::vector<std::string> codes;  // of the warnings
};

inline Parsed parse(const Json& config, const Json& generation = Json::object()) {
  Warnings warnings;
  Parsed parsed{parse_model_config(config, generation, "config.json", warnings), {}};
  for (const Warning& warning : warnings.all()) parsed.codes.push_back(warning.code);
  return parsed;
}

inline std::string why(const Json& config, const Json& generation = Json::object()) {
  try {
    parse(config, generation);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::unreadable ? error.what() : std::string("wrong kind: ") + error.what();
  }
  return "no error";
}

using Windows = std::vector<std::optional<std::int64_t>>;
inline constexpr std::nullopt_t kFull = std::nullopt;

}  // namespace kvdiv::test
