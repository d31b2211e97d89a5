#pragma once
// Checkpoints for tests: the golden ones, changed copies of them, and decoders made of either.
#include <ATen/core/Tensor.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/mapped_file.h"
#include "kvdiv/io/safetensors.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/model/weights.h"
#include "support/temp_dir.h"

namespace kvdiv::test {

inline std::filesystem::path root() { return KVDIV_TEST_ROOT; }
inline std::filesystem::path golden_dir(const std::string& name) { return root() / "tests" / "golden" / name; }
inline std::filesystem::path toy_dir(const std::string& name) { return root() / "data" / "models" / name; }

inline const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> names{"tiny-llama", "tiny-mistral", "tiny-gemma2"};
  return names;
}

inline ModelConfig config_of(const std::filesystem::path& dir) {
  Warnings warnings;
  const Checkpoint checkpoint = Checkpoint::open(dir);
  return parse_model_config(checkpoint.config(), checkpoint.generation_config(), (dir / "config.json").string(), warnings);
}

inline LoadedModel load(const std::filesystem::path& dir, DType dtype, const std::string& attention = "eager", const std::string& backend = "torch") {
  at::set_num_threads(1);  // tiny products: on a busy machine the barriers of two threads cost a hundred times the work
  Warnings warnings;
  return load_model(Checkpoint::open(dir), config_of(dir), dtype, make_ops(backend, attention), warnings);
}

/// A decoder of a changed config with the weights of `dir` under the names that the change leaves.
inline Decoder load_changed(const std::filesystem::path& dir, DType dtype, const std::function<void(ModelConfig&)>& change) {
  LoadedModel original = load(dir, dtype);
  ModelConfig config = config_of(dir);
  change(config);
  Decoder decoder(config, dtype, make_ops("torch", "eager"));
  std::map<std::string, at::Tensor> by_name;
  for (const NamedWeight& w : original.decoder.weights()) by_name[w.name] = *w.tensor;
  for (const NamedWeight& w : decoder.weights()) *w.tensor = by_name.at(w.name);
  return decoder;
}

/// Values of a golden file.
class Golden {
 public:
  explicit Golden(const std::string& model) : file_(golden_dir(model) / "golden.safetensors") {
    header_ = parse_safetensors(file_.bytes(), "golden.safetensors");
  }
  std::vector<std::int64_t> ids(const std::string& name) const { return values<std::int64_t>(name); }
  std::vector<double> numbers(const std::string& name) const { return values<double>(name); }
  /// Row `i` of a matrix [rows, columns].
  std::vector<double> row(const std::string& name, std::int64_t i) const {
    const TensorInfo& t = find(name);
    const auto all = numbers(name);
    const auto columns = t.shape.at(1);
    return {all.begin() + i * columns, all.begin() + (i + 1) * columns};
  }
  std::int64_t n_rows(const std::string& name) const { return find(name).shape.at(0); }

 private:
  const TensorInfo& find(const std::string& name) const {
    for (const TensorInfo& t : header_.tensors)
      if (t.name == name) return t;
    fail(ErrorKind::internal, "golden file has no {}", name);
  }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const TensorInfo& t = find(name);
    std::vector<T> out(t.n_bytes() / sizeof(T));
    std::memcpy(out.data(), file_.bytes().data() + header_.data_begin + t.begin, t.n_bytes());
    return out;
  }
  MappedFile file_;
  SafetensorsHeader header_;
};

inline std::vector<double> to_doubles(const at::Tensor& t) {
  const at::Tensor d = t.to(at::kDouble).contiguous().reshape({-1});
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

inline double max_abs_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) fail(ErrorKind::internal, "rows of {} and {} values", a.size(), b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= largest)) largest = d;
  }
  return largest;
}

/// Writes a safetensors file: tensors in the order given, bytes as they are.
struct RawTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
inline void write_safetensors(const std::filesystem::path& path, const std::vector<RawTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const RawTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t n = text.size();
  std::string file(reinterpret_cast<const char*>(&n), sizeof n);
  write_text_file_atomically(path, file + text + data);
}

/// All tensors of a checkpoint as raw bytes, to be changed and written again.
inline std::vector<RawTensor> raw_tensors(const std::filesystem::path& dir) {
  const Checkpoint checkpoint = Checkpoint::open(dir);
  std::vector<RawTensor> out;
  for (const std::string& name : checkpoint.names()) {
    const TensorView* view = checkpoint.find(name);
    out.push_back({name, std::string(name_of(view->info.dtype)), view->info.shape,
                   std::string(reinterpret_cast<const char*>(view->data), view->info.n_bytes())});
  }
  return out;
}

}  // namespace kvdiv::test
