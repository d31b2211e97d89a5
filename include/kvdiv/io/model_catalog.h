#pragma once
// configs/models.json, and the two caches in which models may lie. Used by hub.cpp.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvdiv {

struct Alias {
  std::string repo;          ///< "org/name"
  std::string architecture;  ///< "LlamaForCausalLM"
  std::string toy;           ///< the shipped toy of that architecture
  bool gated = false;        ///< downloading needs a login and an accepted licence
};

/// Throws Error{unreadable} that names file and key.
std::map<std::string, Alias> read_aliases(const std::filesystem::path& models_json);

/// HF_HUB_CACHE, else HF_HOME/hub, else ${XDG_CACHE_HOME:-~/.cache}/huggingface/hub; empty if there is no home.
std::filesystem::path hub_cache_dir();
/// ${XDG_CACHE_HOME:-~/.cache}/kvdiv/models; empty if there is no home.
std::filesystem::path local_models_dir();

/// True for "org/name" as the hub allows it.
bool is_repo_name(const std::string& text);

/// The snapshot of a repository with a config.json: the one refs/main names, else the newest (of equally new ones the
/// last by name). None if there is no such snapshot.
std::optional<std::filesystem::path> find_snapshot(const std::filesystem::path& cache, const std::string& repo);

/// Repositories in the cache ("org/name"), sorted, whether complete or not.
std::vector<std::string> repos_in_cache(const std::filesystem::path& cache);

/// Names of the sub-directories that hold a config.json, sorted; none if the directory cannot be read.
std::vector<std::string> model_folders(const std::filesystem::path& dir);

}  // namespace kvdiv
