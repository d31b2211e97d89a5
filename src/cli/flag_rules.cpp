#include "flag_rules.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

using Pair = std::pair<const char*, const char*>;
constexpr std::array<Pair, 3> kExclusive{{{"seed", "seeds"}, {"quiet", "verbose"}, {"overwrite", "resume"}}};

/// The flag is of use only if the setting has one of these values (a list: if it holds one of them).
struct Use {
  const char* command;  ///< empty: every command that has both
  const char* flag;
  const char* setting;
  std::vector<Json> values;
};

const std::vector<Use>& uses() {
  static const std::vector<Json> sampling{"top-k", "top-p"}, pairs{"flip-kl", "fp32"}, kv{"k", "v", "kv"};
  static const std::vector<Json> decoding{"flip-kl", "fp32", "orders"};
  static const std::vector<Use> table{
      {"falsify", "strategy", "part", pairs},
      {"falsify", "temperature", "part", pairs},
      {"falsify", "top_k", "part", pairs},
      {"falsify", "top_p", "part", pairs},
      {"falsify", "seeds", "part", pairs},
      {"falsify", "seed", "part", pairs},
      {"falsify", "max_new_tokens", "part", decoding},
      {"falsify", "ignore_eos", "part", decoding},
      {"falsify", "samples", "part", {"fp32"}},
      {"", "temperature", "strategy", sampling},
      {"", "top_k", "strategy", {"top-k"}},
      {"", "top_p", "strategy", {"top-p"}},
      {"patch", "heads", "what", kv},
      {"patch", "positions", "what", kv},
      {"noise", "size", "kind", {"gaussian"}},
      {"noise", "noise_seeds", "kind", {"gaussian"}},
      {"noise", "mantissa_bits", "kind", {"mantissa"}},
      {"trace", "gqa_prompts", "no_gqa", {false}},
      {"trace", "gqa_size", "no_gqa", {false}},
      {"trace", "gqa_draws", "no_gqa", {false}},
      {"mitigate", "max_subsets", "no_search", {false}},
      {"report", "json", "html", {nullptr}},
      {"report", "json", "csv", {nullptr}},
  };
  return table;
}

std::string flag_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

const FieldInfo* find_field(const Command& command, const std::string& key) {
  const auto it = std::find_if(command.fields.begin(), command.fields.end(),
                               [&](const FieldInfo& field) { return json_key(field.key) == key; });
  return it == command.fields.end() ? nullptr : &*it;
}

bool is_set(const Json& layer, const char* key) {
  const auto it = layer.find(key);
  return it != layer.end() && !it->is_null() && *it != false;
}

Json setting_of(const Json& values, const FieldInfo& field) {
  const auto it = values.find(json_key(field.key));
  return it != values.end() ? *it : field.default_value;
}

std::string text_of(const Json& value) {
  if (!value.is_array()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::string out;
  for (const Json& item : value) out += (out.empty() ? "" : ",") + text_of(item);
  return out;
}

bool holds_one_of(const Json& setting, const std::vector<Json>& values) {
  return std::any_of(values.begin(), values.end(), [&](const Json& value) {
    return setting.is_array() ? std::find(setting.begin(), setting.end(), value) != setting.end() : setting == value;
  });
}

[[noreturn]] void refuse(const Use& use, const Json& setting) {
  const std::string flag = flag_name(use.flag), other = flag_name(use.setting);
  if (setting.is_boolean() || use.values.front().is_null()) fail_usage("{}: not used with {}; leave one of them out", flag, other);
  std::vector<std::string> wanted;
  for (const Json& value : use.values) wanted.push_back(text_of(value));
  std::string list = wanted.front();
  for (std::size_t i = 1; i < wanted.size(); ++i) list += (i + 1 < wanted.size() ? ", " : " or ") + wanted[i];
  fail_usage("{}: not used with {} {}; leave it out, or choose {} {}", flag, other, text_of(setting), other, list);
}

}  // namespace

void refuse_contradictions(const Command& command, Json& layer, const std::string& where) {
  if (const FieldInfo* seeds = find_field(command, "seeds"); seeds != nullptr && !where.empty())
    if (is_set(layer, "seed") && layer.contains("seeds") && layer["seeds"] == seeds->default_value)
      layer.erase("seeds");
  for (const auto& [a, b] : kExclusive)
    if (is_set(layer, a) && is_set(layer, b))
      fail_usage("{}{} and {} contradict each other: give one of them", where, flag_name(a), flag_name(b));
}

void put_over(Json& values, const Json& upper) {
  for (const auto& [a, b] : kExclusive) {
    if (is_set(upper, a)) values.erase(b);
    if (is_set(upper, b)) values.erase(a);
  }
  values.update(upper);
}

void refuse_unused(const Command& command, const Json& given, const Json& values) {
  for (const Use& use : uses()) {
    if ((*use.command != '\0' && command.name != use.command) || !given.contains(use.flag)) continue;
    const FieldInfo* const setting = find_field(command, use.setting);
    if (setting == nullptr) continue;
    if (const Json value = setting_of(values, *setting); !holds_one_of(value, use.values)) refuse(use, value);
  }
  // A file is used whole and in its order unless a size asks for a sample.
  const FieldInfo* const prompts = find_field(command, "prompts");
  if (prompts == nullptr || !given.contains("sample_seed")) return;
  const bool draws = values.contains("sample_size") && !values["sample_size"].is_null();
  if (!draws && setting_of(values, *prompts) != "gsm8k")
    fail_usage("--sample-seed: not used with a file of prompts that is used whole; give --sample-size too");
}

}  // namespace kvdiv
