#pragma once
// Typed access to the keys of config.json; every message names file, key and value.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/warnings.h"

namespace kvdiv {

class ConfigReader {
 public:
  ConfigReader(const Json& config, const std::string& file) : config_(config), file_(file) {}

  const std::string& file() const { return file_; }
  /// Null pointer if the key is absent; a JSON null is a value.
  const Json* find(const char* key) const {
    const auto it = config_.find(key);
    return it == config_.end() ? nullptr : &*it;
  }
  /// Null pointer if the key is absent or null.
  const Json* find_set(const char* key) const {
    const Json* value = find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  [[noreturn]] void refuse(const char* key, const Json& value, std::string_view expected) const {
    fail_unreadable("{}: {} = {}: expected {}", file_, key, short_dump(value), expected);
  }

  /// An integer in [1, max]; without a default the key must be there. Null is not a number.
  std::int64_t size(const char* key, std::int64_t max, std::optional<std::int64_t> if_absent = std::nullopt) const {
    const Json* value = find(key);
    if (value == nullptr && if_absent) return *if_absent;
    if (value == nullptr) fail_unreadable("{}: {} is missing", file_, key);
    const auto n = as_integer(*value);
    if (!n || *n < 1 || *n > max) refuse(key, *value, fmt::format("an integer from 1 to {}", max));
    return *n;
  }

  bool boolean(const char* key, bool if_absent) const {
    const Json* value = find(key);
    if (value == nullptr) return if_absent;
    if (!value->is_boolean()) refuse(key, *value, "true or false");
    return value->get<bool>();
  }

  /// A number above 0 (JSON numbers are finite).
  static bool is_positive(const Json& value) { return value.is_number() && value.get<double>() > 0.0; }

 private:
  const Json& config_;
  const std::string& file_;
};

/// rope_theta from every published spelling: top level, rope_parameters (also nested per layer type, if all agree), and
/// what rope_scaling may hold. Refuses every scaling.
double read_rope_theta(const ConfigReader& reader, Warnings& warnings);

/// What an architecture makes of sliding_window and layer_types.
struct WindowRule {
  bool allowed;                               ///< LLaMA has no windows
  bool alternates;                            ///< Gemma-2 without layer_types: even 0-based layers slide
  std::optional<std::int64_t> class_default;  ///< without the key sliding_window
  bool warn_default;                          ///< the default is a choice that deserves a warning (Mistral)
};
/// Per layer: the keys that a query sees, itself included; none: all.
std::vector<std::optional<std::int64_t>> read_windows(const ConfigReader& reader, const WindowRule& rule,
                                                      std::int64_t n_layers, Warnings& warnings);

}  // namespace kvdiv
