#include "kvdiv/report/identity.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "kvdiv/base/error.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

/// Paths of keys; what lies below a path counts too.
constexpr std::array kMeasured{"schema",
                               "tool.numeric_version",
                               "experiment.name",
                               "experiment.params",
                               "model.weights_sha256",
                               "model.architecture",
                               "model.traits",
                               "model.sizes",
                               "model.rope_theta",
                               "model.rms_norm_eps",
                               "model.eos_ids",
                               "data.sha256",
                               "data.indices",
                               "numerics.dtype",
                               "numerics.backend",
                               "numerics.attention"};
constexpr std::array kEnvironment{"tool.libtorch",
                                  "environment.cpu",
                                  "environment.cpu_features",
                                  "environment.n_threads",
                                  "environment.device",
                                  "environment.gpu",
                                  "environment.driver",
                                  "environment.cuda",
                                  "environment.cublas",
                                  "environment.env_vars",
                                  "numerics"};

std::string text_of(const Json& j) { return j.is_null() ? "not there" : short_dump(j); }

void find_differences(const std::string& path, const Json& a, const Json& b, const std::vector<std::string>& left_out,
                      std::vector<KeyDifference>& out) {
  if (a == b) return;
  for (const std::string& start : left_out)
    if (path.starts_with(start)) return;
  if (a.is_object() && b.is_object()) {
    std::set<std::string> keys;
    for (const Json* side : {&a, &b})
      for (const auto& [key, value] : side->items()) keys.insert(key);
    for (const std::string& key : keys)
      find_differences(path + "." + short_name(key), a.value(key, Json()), b.value(key, Json()), left_out, out);
  } else if (a.is_array() && b.is_array() && a.size() == b.size()) {
    std::size_t i = 0;
    while (a[i] == b[i]) ++i;
    find_differences(fmt::format("{}[{}]", path, i), a[i], b[i], left_out, out);
  } else {
    out.push_back({path, text_of(a), text_of(b)});
  }
}

template <std::size_t N>
std::vector<KeyDifference> differences(const std::array<const char*, N>& paths, const Json& a, const Json& b) {
  static const std::vector<std::string> left_out{
      "environment.env_vars.KVDIV_"};  // where to look for files: those are hashed
  std::vector<KeyDifference> out;
  for (const char* path : paths) find_differences(path, at_path(a, path), at_path(b, path), left_out, out);
  return out;
}

}  // namespace

std::vector<KeyDifference> key_differences(const std::string& path, const Json& a, const Json& b,
                                           const std::vector<std::string>& left_out) {
  std::vector<KeyDifference> out;
  find_differences(path, a, b, left_out, out);
  return out;
}

std::vector<KeyDifference> measured_differences(const Json& a, const Json& b) { return differences(kMeasured, a, b); }

std::vector<KeyDifference> environment_differences(const Json& a, const Json& b) {
  return differences(kEnvironment, a, b);
}

std::vector<KeyDifference> shard_differences(const Json& a, const Json& b) {
  return differences(std::array{"experiment.shard"}, a, b);
}

std::string describe_differences(const std::vector<KeyDifference>& differences, const std::string& name_a,
                                 const std::string& name_b) {
  if (differences.empty()) return "";
  const KeyDifference& first = differences.front();
  std::string text = fmt::format("{} is {} {} and {} {}", first.key, first.a, name_a, first.b, name_b);
  if (differences.size() > 1) text += fmt::format(" ({} more differ)", differences.size() - 1);
  return text;
}

}  // namespace kvdiv
