#include "kvdiv/io/hub.h"

#include <algorithm>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/model_catalog.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

bool has_config(const fs::path& dir) {
  std::error_code ignored;
  return fs::is_directory(dir, ignored) && fs::exists(dir / "config.json", ignored);
}

/// A toy of the same family, by the name of the repository.
std::string toy_for_repo(const std::string& repo) {
  std::string lower = repo;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (lower.find("gemma") != std::string::npos) return "toy-gemma2";
  if (lower.find("mistral") != std::string::npos) return "toy-mistral";
  return "toy-llama";
}

[[noreturn]] void fail_not_downloaded(const std::string& name, const Alias& alias, const fs::path& cache) {
  const std::string what =
      name == alias.repo ? fmt::format("model {}", name) : fmt::format("model {} ({})", name, alias.repo);
  std::error_code ignored;
  const std::string folder = "models--" + split(alias.repo, '/')[0] + "--" + split(alias.repo, '/')[1];
  const bool begun = !cache.empty() && fs::exists(cache / folder, ignored);
  fail_unreadable(
      "{} is not on this machine: {} {}\ndownload it with  hf download {} --include \"*.safetensors\" "
      "\"*.json\" \"tokenizer.model\" --exclude \"consolidated*\"{}, or run now with --model {}",
      what, begun ? "its download is incomplete (no config.json) in" : "not in the Hugging Face cache",
      cache.empty() ? "(no HOME)" : cache.string(), alias.repo,
      alias.gated ? "  (gated: accept its licence and log in with `hf auth login` first)"
                  : "  (if it is gated, log in with `hf auth login` first)",
      alias.toy);
}

std::vector<std::string> plain_names(const DataPaths& data, const std::map<std::string, Alias>& aliases) {
  std::set<std::string> names;
  for (auto& name : model_folders(data.data / "models")) names.insert(name);
  for (auto& name : model_folders(local_models_dir())) names.insert(name);
  for (const auto& [name, alias] : aliases) names.insert(name);
  return {names.begin(), names.end()};
}

[[noreturn]] void fail_unknown(const std::string& name, const DataPaths& data,
                               const std::map<std::string, Alias>& aliases) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) fail_unreadable("{}: a directory without config.json, so not a model", name);
  if (fs::exists(name, ignored)) fail_unreadable("{}: is a file, expected the directory that holds config.json", name);
  if (name.find('/') != std::string::npos)
    fail_unreadable("{}: no such directory, and not the name of a model (org/name)", name);
  if (name.starts_with("smollm2-135m-"))
    fail_unreadable("model {}: not in {}\nscripts/get_smollm2 makes smollm2-135m-f16 and smollm2-135m-f32 there", name,
                    local_models_dir().string());
  const auto known = plain_names(data, aliases);
  std::string all;
  for (const auto& candidate : known) all += (all.empty() ? "" : ", ") + candidate;
  fail_unreadable("model '{}' is unknown{}\nexpected a directory with config.json, org/name, or one of {}", name,
                  did_you_mean(name, known), all);
}

ListedModel describe_folder(std::string name, std::string kind, const fs::path& path) {
  ListedModel model{std::move(name), std::move(kind), {}, path, {}, {}, 0};
  try {
    const Json config = read_json_file(path / "config.json");
    if (!config.is_object()) fail_unreadable("{}: expected a JSON object", (path / "config.json").string());
    if (const auto list = config.find("architectures");
        list != config.end() && list->is_array() && !list->empty() && list->front().is_string())
      model.architecture = list->front().get<std::string>();
    else if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
      model.architecture = type->get<std::string>();
    else
      model.problem = "config.json names no architecture";
  } catch (const Error& error) {
    model.problem = error.what();
  }
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".safetensors") continue;
    std::error_code ignored;
    if (const auto n = fs::file_size(it->path(), ignored); !ignored) model.bytes += n;
  }
  return model;
}

}  // namespace

ResolvedModel resolve_model(const std::string& name, const DataPaths& data) {
  if (name.empty())
    fail_unreadable("the model's name is empty: give a directory, a name of `kvdiv models`, or org/name");
  if (has_config(name)) return {name, name, ""};
  const bool is_plain = name.find('/') == std::string::npos && name != "." && name != "..";
  if (is_plain)
    if (const fs::path toy = data.data / "models" / name; has_config(toy)) return {name, toy, ""};
  const auto aliases = read_aliases(data.configs / "models.json");
  auto wanted = aliases.find(name);
  if (wanted == aliases.end())
    wanted = std::find_if(aliases.begin(), aliases.end(), [&](const auto& entry) { return entry.second.repo == name; });
  if (wanted == aliases.end() && is_plain)
    if (const fs::path local = local_models_dir(); !local.empty() && has_config(local / name))
      return {name, local / name, ""};
  if (wanted == aliases.end() && !is_repo_name(name)) fail_unknown(name, data, aliases);
  const Alias alias = wanted != aliases.end() ? wanted->second : Alias{name, "", toy_for_repo(name), false};
  const fs::path cache = hub_cache_dir();
  if (const auto snapshot = find_snapshot(cache, alias.repo)) return {name, *snapshot, alias.repo};
  std::error_code ignored;
  if (wanted == aliases.end() && fs::exists(name, ignored)) fail_unknown(name, data, aliases);
  fail_not_downloaded(name, alias, cache);
}

std::vector<ListedModel> list_models(const DataPaths& data) {
  std::vector<ListedModel> models;
  const fs::path toys = data.data / "models", local = local_models_dir(), cache = hub_cache_dir();
  for (const auto& name : model_folders(toys)) models.push_back(describe_folder(name, "toy", toys / name));
  std::set<std::string> listed_repos;
  for (const auto& [name, alias] : read_aliases(data.configs / "models.json")) {
    ListedModel model{name, "alias", {}, std::nullopt, alias.architecture, {}, 0};
    if (const auto snapshot = find_snapshot(cache, alias.repo)) model = describe_folder(name, "alias", *snapshot);
    model.repo = alias.repo;
    listed_repos.insert(alias.repo);
    models.push_back(std::move(model));
  }
  for (const auto& name : model_folders(local)) models.push_back(describe_folder(name, "local", local / name));
  for (const auto& repo : repos_in_cache(cache)) {
    const auto snapshot = find_snapshot(cache, repo);
    if (!snapshot || listed_repos.contains(repo)) continue;
    models.push_back(describe_folder(repo, "hub", *snapshot));
    models.back().repo = repo;
  }
  return models;
}

}  // namespace kvdiv
