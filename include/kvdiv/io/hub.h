#pragma once
// Where models are on this machine. Nothing is ever fetched.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvdiv {

/// What is shipped with the program: models.json and paper.json are in `configs`; `data` holds models/ (the toys) and
/// gsm8k/.
struct DataPaths {
  std::filesystem::path configs;
  std::filesystem::path data;
};

/// `KVDIV_DATA` (a directory with configs/ and data/) if set; else <directory of the program>/../share/kvdiv if it has
/// both; else the nearest directory above the program that has configs/models.json and data/models (a source tree).
/// Throws Error{unreadable} if there is none.
DataPaths find_data_paths();
/// The same, for a program that lies in `exe_dir`.
DataPaths find_data_paths_from(const std::filesystem::path& exe_dir);

struct ResolvedModel {
  std::string name;            ///< as the user wrote it
  std::filesystem::path path;  ///< a directory with config.json
  std::string org_name;        ///< "org/name" where the model came from the Hugging Face cache, else empty
};

/// In this order: a directory with config.json; a toy of data/models; an alias of configs/models.json or org/name in
/// the Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub; the snapshot that refs/main names, else
/// the newest); a model that a script made (${XDG_CACHE_HOME:-~/.cache}/kvdiv/models/<name>). A toy is never taken for
/// a named real model. Throws Error{unreadable}: a real model that is absent, with the download command and the toy
/// that runs now; a directory without config.json; an unknown name, with the nearest known one.
ResolvedModel resolve_model(const std::string& name, const DataPaths& data);

struct ListedModel {
  std::string name;                           ///< what --model takes
  std::string kind;                           ///< "toy", "alias", "local" (made by a script) or "hub"
  std::string repo;                           ///< "org/name" of an alias or hub model, else empty
  std::optional<std::filesystem::path> path;  ///< none: not downloaded
  std::string architecture;                   ///< of config.json; for an absent alias of models.json; may be empty
  std::string problem;                        ///< why config.json cannot be used, else empty
  std::uint64_t bytes = 0;                    ///< of the folder's *.safetensors

  bool downloaded() const { return path.has_value(); }
};

/// The toys, the aliases, then every other model with a config.json in kvdiv's and in the Hugging Face cache; each
/// group sorted by name. Unreadable folders are listed with their problem, never thrown.
std::vector<ListedModel> list_models(const DataPaths& data);

}  // namespace kvdiv
