#include "kvdiv/io/checkpoint.h"

#include <algorithm>
#include <functional>
#include <set>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool exists_or_dangles(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Json read_object(const fs::path& path) {
  Json json = read_json_file(path);
  if (!json.is_object()) fail_unreadable("{}: expected a JSON object, found {}", path.string(), short_dump(json));
  return json;
}

std::string join_some(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i == 0 ? "" : ", ") + short_name(names[i]);
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

/// No weights under the names that count: say what is there instead.
[[noreturn]] void fail_no_weights(const fs::path& dir) {
  std::vector<std::string> safetensors, pytorch, gguf;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string extension = it->path().extension().string();
    if (extension == ".safetensors") safetensors.push_back(name);
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") pytorch.push_back(name);
    if (extension == ".gguf") gguf.push_back(name);
  }
  if (error) fail_unreadable("{}: cannot be listed: {}", dir.string(), error.message());
  for (auto* names : {&safetensors, &pytorch, &gguf}) std::sort(names->begin(), names->end());
  const std::string start = fmt::format("{}: no {} and no {}", dir.string(), kSingleFile, kIndexFile);
  if (std::any_of(safetensors.begin(), safetensors.end(),
                  [](const std::string& name) { return name.starts_with("consolidated"); }))
    fail_unreadable(
        "{}; {} names its tensors in another convention (layers.0.attention.wk.weight), which is not "
        "supported: download the model-*.safetensors shards and their index",
        start, join_some(safetensors));
  if (!safetensors.empty())
    fail_unreadable("{}, but {}: download the index, or give the single file the name {}", start,
                    join_some(safetensors), kSingleFile);
  if (!pytorch.empty())
    fail_unreadable(
        "{}, only PyTorch files ({}), which are not read: save the model as safetensors "
        "(transformers: save_pretrained) or download the safetensors files",
        start, join_some(pytorch));
  if (!gguf.empty())
    fail_unreadable(
        "{}, only GGUF ({}), which is not read: save it as safetensors (transformers: from_pretrained with "
        "gguf_file, then save_pretrained)",
        start, join_some(gguf));
  fail_unreadable("{}: the folder holds no weights; download *.safetensors", start);
}

/// A shard is a file of the folder itself: an index must not reach out of it.
void check_shard_name(const std::string& index_file, const std::string& tensor, const std::string& name) {
  // A NUL byte would end the name where the file is opened, and a message must not move a terminal's cursor.
  const bool is_plain = name.find_first_of("/\\") == std::string::npos && name.find("..") == std::string::npos &&
                        std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!is_plain)
    fail_unreadable("{}: weight_map: tensor '{}': '{}' is not a plain file name", index_file, short_name(tensor),
                    short_name(name));
  if (!name.ends_with(".safetensors"))
    fail_unreadable("{}: weight_map: tensor '{}': '{}' does not end in .safetensors", index_file, short_name(tensor),
                    short_name(name));
}

void check_directory(const fs::path& dir) {
  std::error_code ignored;
  if (!fs::exists(dir, ignored)) fail_unreadable("{}: no such directory", dir.string());
  if (!fs::is_directory(dir, ignored))
    fail_unreadable("{}: is a file, expected the directory that holds config.json", dir.string());
  if (!exists_or_dangles(dir / "config.json"))
    fail_unreadable("{}: no config.json, so not a model directory", dir.string());
}

}  // namespace

WeightMap parse_weight_map(const Json& index, const std::string& file) {
  if (!index.is_object()) fail_unreadable("{}: expected a JSON object, found {}", file, short_dump(index));
  const auto entries = index.find("weight_map");
  if (entries == index.end()) fail_unreadable("{}: key weight_map is missing", file);
  if (!entries->is_object())
    fail_unreadable("{}: weight_map: expected an object (tensor: file), found {}", file, short_dump(*entries));
  if (entries->empty()) fail_unreadable("{}: weight_map is empty: it lists no tensor", file);
  WeightMap weight_map;
  for (const auto& [tensor, name] : entries->items()) {
    if (!name.is_string())
      fail_unreadable("{}: weight_map: tensor '{}': expected a file name, found {}", file, short_name(tensor),
                      short_dump(name));
    check_shard_name(file, tensor, name.get<std::string>());
    weight_map.emplace(tensor, name.get<std::string>());
  }
  return weight_map;
}

Checkpoint Checkpoint::open(const fs::path& dir) {
  check_directory(dir);
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  checkpoint.config_path_ = dir / "config.json";
  checkpoint.config_ = read_object(checkpoint.config_path_);
  if (const fs::path generation = dir / "generation_config.json"; exists_or_dangles(generation))
    checkpoint.generation_config_ = read_object(generation);
  if (exists_or_dangles(dir / kSingleFile)) {
    checkpoint.add_shard(dir / kSingleFile);
  } else if (const fs::path index = dir / kIndexFile; exists_or_dangles(index)) {
    checkpoint.open_shards(parse_weight_map(read_json_file(index), index.string()), index.string());
  } else {
    fail_no_weights(dir);
  }
  return checkpoint;
}

void Checkpoint::open_shards(const WeightMap& weight_map, const std::string& index_file) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  std::vector<std::string> missing;
  for (const std::string& file : files)
    if (std::error_code ignored; !fs::exists(dir_ / file, ignored)) missing.push_back(file);
  if (!missing.empty())
    fail_unreadable("{}: {} of {} shards it lists are missing: {}; download them (an unfinished download?)", index_file,
                    missing.size(), files.size(), join_some(missing));
  for (const std::string& file : files) add_shard(dir_ / file);
  check_index(weight_map, index_file);
}

void Checkpoint::add_shard(const fs::path& file) {
  MappedFile mapped(file);
  SafetensorsHeader header = parse_safetensors(mapped.bytes(), file.string());
  const std::byte* data = mapped.bytes().data() + header.data_begin;
  for (TensorInfo& info : header.tensors) {
    const std::string name = info.name;
    const std::byte* begin = data + info.begin;
    const auto [it, is_new] = tensors_.emplace(name, TensorView{std::move(info), begin, shards_.size()});
    if (!is_new)
      fail_unreadable("{}: tensor '{}' is in this file and in {} too", file.string(), short_name(name),
                      shard_of(it->second));
  }
  shards_.push_back({std::move(mapped), header.data_begin});
}

void Checkpoint::check_index(const WeightMap& weight_map, const std::string& index_file) const {
  for (const auto& [tensor, file] : weight_map) {
    const TensorView* found = find(tensor);
    if (found == nullptr)
      fail_unreadable("{}: tensor '{}' should be in {}, but no shard has it: index and shards do not belong together",
                      index_file, short_name(tensor), file);
    if (shard_of(*found) != file)
      fail_unreadable("{}: tensor '{}' should be in {}, but is in {}: index and shards do not belong together",
                      index_file, short_name(tensor), file, shard_of(*found));
  }
  for (const auto& [tensor, view] : tensors_)
    if (!weight_map.contains(tensor))
      fail_unreadable("{}: tensor '{}' of {} is not listed: the index is stale, download it again", index_file,
                      short_name(tensor), shard_of(view));
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<fs::path> Checkpoint::shards() const {
  std::vector<fs::path> paths;
  for (const Shard& shard : shards_) paths.push_back(shard.file.path());
  return paths;
}

std::string Checkpoint::shard_of(const TensorView& tensor) const {
  return shards_.at(tensor.shard).file.path().filename().string();
}

std::uint64_t Checkpoint::weight_bytes() const {
  std::uint64_t n = 0;
  for (const auto& [name, view] : tensors_) n += view.info.n_bytes();
  return n;
}

std::map<std::string, std::int64_t> Checkpoint::dtypes_on_disk() const {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [name, view] : tensors_) ++counts[std::string(name_of(view.info.dtype))];
  return counts;
}

void Checkpoint::drop(const TensorView& tensor) const {
  const Shard& shard = shards_.at(tensor.shard);
  shard.file.drop(shard.data_begin + tensor.info.begin, tensor.info.n_bytes());
}

const std::string& Checkpoint::weights_sha256() const {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  if (!sha256_.empty()) return sha256_;
  Sha256 hash;
  for (const Shard& shard : shards_) {
    const auto bytes = shard.file.bytes();
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
      hash.update(piece.data(), piece.size());
      shard.file.drop(at, piece.size());
    }
  }
  sha256_ = hash.hex();
  return sha256_;
}

}  // namespace kvdiv
