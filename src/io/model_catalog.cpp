#include "kvdiv/io/model_catalog.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <tuple>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path user_cache_dir() {
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg;
  if (const std::string home = environment("HOME"); !home.empty()) return fs::path(home) / ".cache";
  return {};
}

/// Huggingface's own variables may start with "~/".
fs::path expand_home(const std::string& path) {
  const std::string home = environment("HOME");
  if (path.starts_with("~/") && !home.empty()) return fs::path(home) / path.substr(2);
  return path;
}

bool has_config(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "config.json", ignored);
}

std::vector<std::string> subdirectories(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  if (dir.empty()) return names;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (std::error_code ignored; it->is_directory(ignored)) names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& repo) {
  const auto slash = repo.find('/');
  return "models--" + repo.substr(0, slash) + "--" + repo.substr(slash + 1);
}

Alias read_alias(const Json& entry, const std::string& where) {
  const auto text = [&](const char* key) {
    const auto it = entry.is_object() ? entry.find(key) : entry.end();
    if (it == entry.end() || !it->is_string()) fail_unreadable("{}: key {} is missing or not a text", where, key);
    return it->get<std::string>();
  };
  Alias alias{text("repo"), text("architecture"), text("toy"), false};
  if (const auto gated = entry.find("gated"); gated != entry.end()) {
    if (!gated->is_boolean()) fail_unreadable("{}: gated: expected true or false, found {}", where, short_dump(*gated));
    alias.gated = gated->get<bool>();
  }
  if (!is_repo_name(alias.repo)) fail_unreadable("{}: repo '{}' is not org/name", where, alias.repo);
  return alias;
}

}  // namespace

std::map<std::string, Alias> read_aliases(const fs::path& models_json) {
  const Json json = read_json_file(models_json);
  const auto models = json.is_object() ? json.find("models") : json.end();
  if (models == json.end() || !models->is_object())
    fail_unreadable("{}: key models is missing or not an object", models_json.string());
  std::map<std::string, Alias> aliases;
  for (const auto& [name, entry] : models->items())
    aliases.emplace(name, read_alias(entry, fmt::format("{}: models.{}", models_json.string(), name)));
  return aliases;
}

fs::path hub_cache_dir() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string dir = environment(name); !dir.empty()) return expand_home(dir);
  if (const std::string home = environment("HF_HOME"); !home.empty()) return expand_home(home) / "hub";
  const fs::path cache = user_cache_dir();
  return cache.empty() ? cache : cache / "huggingface" / "hub";
}

fs::path local_models_dir() {
  const fs::path cache = user_cache_dir();
  return cache.empty() ? cache : cache / "kvdiv" / "models";
}

bool is_repo_name(const std::string& text) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part != "." && part.find("..") == std::string_view::npos && part.front() != '-' &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                    c == '_' || c == '.';
           });
  };
  const auto slash = text.find('/');
  if (slash == std::string::npos) return false;
  const std::string_view view(text);
  return is_part(view.substr(0, slash)) && is_part(view.substr(slash + 1));
}

std::optional<fs::path> find_snapshot(const fs::path& cache, const std::string& repo) {
  if (cache.empty()) return std::nullopt;
  const fs::path root = cache / folder_of(repo);
  if (std::error_code ignored; fs::is_regular_file(root / "refs" / "main", ignored)) {
    std::string commit = read_text_file(root / "refs" / "main", 4096);
    commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
    const bool is_plain = !commit.empty() && commit.find('/') == std::string::npos && commit != "." && commit != "..";
    if (is_plain && has_config(root / "snapshots" / commit)) return root / "snapshots" / commit;
  }
  std::optional<fs::path> newest;
  std::tuple<fs::file_time_type, std::string> newest_key;
  for (const std::string& name : subdirectories(root / "snapshots")) {
    const fs::path snapshot = root / "snapshots" / name;
    if (!has_config(snapshot)) continue;
    std::error_code ignored;
    const std::tuple key{fs::last_write_time(snapshot, ignored), name};
    if (newest && key <= newest_key) continue;
    newest = snapshot;
    newest_key = key;
  }
  return newest;
}

std::vector<std::string> repos_in_cache(const fs::path& cache) {
  std::vector<std::string> repos;
  for (const std::string& folder : subdirectories(cache)) {
    if (!folder.starts_with("models--")) continue;
    const std::string name = folder.substr(8);
    const auto at = name.find("--");
    if (at == std::string::npos) continue;
    std::string repo = name.substr(0, at) + "/" + name.substr(at + 2);
    if (is_repo_name(repo)) repos.push_back(std::move(repo));
  }
  return repos;
}

std::vector<std::string> model_folders(const fs::path& dir) {
  std::vector<std::string> names = subdirectories(dir);
  std::erase_if(names, [&](const std::string& name) { return !has_config(dir / name); });
  return names;
}

}  // namespace kvdiv
