#pragma once
// A checkpoint folder: config.json and its safetensors files, opened and validated, not yet interpreted.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/io/mapped_file.h"
#include "kvdiv/io/safetensors.h"

namespace kvdiv {

/// A tensor's description and its bytes in the mapped file, at any alignment: copy them out with memcpy.
struct TensorView {
  TensorInfo info;
  const std::byte* data = nullptr;  ///< info.n_bytes() of them; null or one-past if there are none
  std::size_t shard = 0;            ///< index into Checkpoint::shards()
};

using WeightMap = std::map<std::string, std::string>;  // tensor → file name

/// The weight_map of an index: at least one tensor, every file a plain name of the index's own folder. Throws
/// Error{unreadable}; `file` starts each message.
WeightMap parse_weight_map(const Json& index, const std::string& file);

/// Which files are the weights, as the reference chooses them: model.safetensors if it is there, else the shards that
/// model.safetensors.index.json lists. Any other file (consolidated.safetensors, an unlisted shard) is ignored. Index
/// and shards must agree tensor by tensor, in both directions: a stale index is refused.
class Checkpoint {
 public:
  /// Throws Error{unreadable} that names the file, tensor or key.
  static Checkpoint open(const std::filesystem::path& dir);

  const std::filesystem::path& path() const { return dir_; }
  const Json& config() const { return config_; }
  const std::filesystem::path& config_path() const { return config_path_; }
  /// generation_config.json, or an empty object if there is none.
  const Json& generation_config() const { return generation_config_; }

  std::vector<std::string> names() const;                ///< sorted
  const TensorView* find(std::string_view name) const;   ///< null if there is no such tensor
  std::vector<std::filesystem::path> shards() const;     ///< in file-name order
  std::string shard_of(const TensorView& tensor) const;  ///< file name, for messages

  std::uint64_t weight_bytes() const;                          ///< of all tensors
  std::map<std::string, std::int64_t> dtypes_on_disk() const;  ///< "BF16" → number of tensors

  /// Gives back the memory of a tensor that has been read; it may be read again.
  void drop(const TensorView& tensor) const;

  /// SHA-256 of the shards' bytes one after another in file-name order: of a single file, what `sha256sum` prints.
  /// Reads everything once, in pieces that are dropped again; remembered. Not for two threads at once.
  const std::string& weights_sha256() const;

 private:
  struct Shard {
    MappedFile file;
    std::uint64_t data_begin;
  };

  Checkpoint() = default;
  void add_shard(const std::filesystem::path& file);
  void open_shards(const WeightMap& weight_map, const std::string& index_file);
  void check_index(const WeightMap& weight_map, const std::string& index_file) const;

  std::filesystem::path dir_, config_path_;
  Json config_ = Json::object(), generation_config_ = Json::object();
  std::vector<Shard> shards_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  mutable std::string sha256_;
};

}  // namespace kvdiv
