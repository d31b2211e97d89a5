// A development tool: how fast both arms of a model decode on a device, beside what the device can do at best. The model has
// a published config and random weights, made on the device: speed depends on no value, and nothing is downloaded.
//
//   kvdiv_device_speed --config FILE [--device cuda] [--dtype float16] [--backend torch] [--prefix 128,512,1024]
//                      [--steps 12] [--graphs yes|no]
//
// One JSON object on stdout. A limit is the larger of two times: the bytes that must be read over the speed of a large copy,
// and the operations that must be done over the speed of a large product, both measured here, in this process.
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/decode/arms.h"
#include "kvdiv/decode/step_graphs.h"
#include "kvdiv/io/files.h"
#include "kvdiv/model/decoder.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/model/weights.h"
#include "kvdiv/numerics/algorithms.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/switches.h"
#include "kvdiv/stats/metrics.h"

namespace {

using namespace kvdiv;
using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags{{"device", "cuda"},         {"dtype", "float16"}, {"backend", "torch"},
              {"prefix", "128,512,1024"}, {"steps", "12"},      {"graphs", "no"},
              {"threads", "1"},           {"copy-mib", "2048"}, {"product", "8192"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(std::min<std::size_t>(2, std::string(argv[i]).size()));
    if (name != "config" && !flags.contains(name)) fail_usage("kvdiv_device_speed: {}: unknown flag", argv[i]);
    flags[name] = argv[i + 1];
  }
  if (!flags.contains("config")) fail_usage("kvdiv_device_speed: --config is missing");
  return flags;
}

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    out.push_back(std::stoll(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

/// Where the model is, and its clock.
class Place {
 public:
  explicit Place(const std::string& device) : gpu_(device == "cpu" ? nullptr : &load_cuda()) {}
  const DeviceModule* gpu() const { return gpu_; }
  c10::Device device() const { return gpu_ != nullptr ? gpu_->device() : c10::Device(c10::kCPU); }

  double seconds_of(const std::function<void()>& work) const {
    const auto watch = gpu_ != nullptr ? gpu_->stopwatch() : nullptr;
    const auto start = std::chrono::steady_clock::now();
    if (watch) watch->begin();
    work();
    if (watch) watch->end();
    if (watch) return watch->seconds();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  /// The median of n calls, each timed by itself, after two that are not.
  double median_seconds(std::int64_t n, const std::function<void()>& work) const {
    for (int i = 0; i < 2; ++i) seconds_of(work);
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < n; ++i) seconds.push_back(seconds_of(work));
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  const DeviceModule* gpu_;
};

struct Limits {
  double bytes_per_s = 0.0, flops_per_s = 0.0;
};

Limits measure_limits(const Place& place, DType dtype, const Flags& flags) {
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(place.device());
  const std::int64_t n = std::stoll(flags.at("copy-mib")) * (1 << 20) / size_of(dtype),
                     side = std::stoll(flags.at("product"));
  Limits out;
  {
    const at::Tensor from = at::ones({n}, options), to = at::empty_like(from);
    out.bytes_per_s = 2.0 * static_cast<double>(from.nbytes()) / place.median_seconds(10, [&] { to.copy_(from); });
  }
  const at::Tensor a = at::randn({side, side}, options), b = at::randn({side, side}, options);
  at::Tensor c = at::empty({side, side}, options);
  const double size = static_cast<double>(side);
  out.flops_per_s = 2.0 * size * size * size / place.median_seconds(10, [&] { at::matmul_out(c, a, b.t()); });
  return out;
}

Decoder random_model(const ModelConfig& config, DType dtype, const std::string& backend, const Place& place) {
  const c10::InferenceMode inference;
  at::manual_seed(1);
  Decoder decoder(config, dtype, make_ops(backend, "eager", place.device()), place.device());
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(place.device());
  for (const NamedWeight& w : decoder.weights())
    decoder.put(w, w.shape.size() == 1 ? at::ones(w.shape, options) : at::randn(w.shape, options).mul_(0.02));
  return decoder;
}

/// What a step must do at least: parameters that are read (of an embedding that is not the head, one row a token), cached
/// keys and values; multiply-adds of the products, and of attention over the keys that each query sees.
struct Work {
  double bytes = 0.0, flops = 0.0;
};

Work work_of(const ModelConfig& config, DType dtype, std::int64_t n_rows, std::int64_t n_keys) {
  const ModelSizes& s = config.sizes;
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const double head = d(s.vocab * s.hidden);
  const double body = d(config.n_params()) - head * (config.traits.tied_head ? 1.0 : 2.0);
  const double rows = d(n_rows), seen = rows * d(n_keys) - rows * (rows - 1.0) / 2.0;
  Work out;
  out.bytes = (body + head) * size_of(dtype);
  if (n_rows < n_keys) out.bytes += static_cast<double>(KvCache::n_bytes(config, dtype, n_keys));
  out.flops = 2.0 * (rows * body + head) + 4.0 * d(s.n_layers * s.n_heads * s.head_dim) * seen;
  return out;
}

Json row_of(const std::string& arm, std::int64_t prefix, const Work& work, const Limits& limits, double seconds) {
  const double by_bytes = work.bytes / limits.bytes_per_s, by_flops = work.flops / limits.flops_per_s;
  return {{"arm", arm},
          {"prefix", prefix},
          {"seconds", seconds},
          {"tokens_per_s", 1.0 / seconds},
          {"bytes", work.bytes},
          {"flops", work.flops},
          {"limit", by_bytes > by_flops ? "bandwidth" : "arithmetic"},
          {"share_of_limit", std::max(by_bytes, by_flops) / seconds}};
}

class Speed {
 public:
  Speed(const Place& place, const ModelConfig& config, DType dtype, const Flags& flags)
      : place_(place),
        n_(std::stoll(flags.at("steps"))),
        limits_(measure_limits(place, dtype, flags)),
        decoder_(random_model(config, dtype, flags.at("backend"), place)) {}

  Json measure(const std::vector<std::int64_t>& prefixes, bool with_graphs) {
    Json rows = Json::array();
    for (const std::int64_t prefix : prefixes) at_prefix(prefix, with_graphs, rows);
    return {{"limits", {{"bytes_per_s", limits_.bytes_per_s}, {"flops_per_s", limits_.flops_per_s}}},
            {"rows", std::move(rows)},
            {"algorithms", algorithms_of(decoder_.ops())}};
  }

 private:
  void at_prefix(std::int64_t prefix, bool with_graphs, Json& rows);
  void compare(const at::Tensor& on, const at::Tensor& off) const {
    const LogitPair pair{on, off};
    if (place_.gpu() != nullptr)
      place_.gpu()->compare({&pair, 1}, nullptr);
    else
      compare_logits(host_logits(on), host_logits(off));
  }

  const Place& place_;
  std::int64_t n_;
  Limits limits_;
  Decoder decoder_;
};

void Speed::at_prefix(std::int64_t prefix, bool with_graphs, Json& rows) {
  const ModelConfig& config = decoder_.config();
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < prefix; ++i) ids.push_back(static_cast<TokenId>(i * 37 % config.sizes.vocab));
  const TokenId token = 17;
  const Work on_work = work_of(config, decoder_.dtype(), 1, prefix + 1);
  const Work off_work = work_of(config, decoder_.dtype(), prefix, prefix);
  const Work both{on_work.bytes + off_work.bytes, on_work.flops + off_work.flops};
  at::Tensor on_V, off_V;
  const auto off = [&] { off_V = decoder_.forward(ids, nullptr); };
  // A pair's step as `kvdiv run` does it: both arms, the metrics, one transfer.
  const auto measure_on = [&](const std::string& how, const std::function<void()>& on) {
    const auto pair = [&] {
      on();
      off();
      compare(on_V, off_V);
    };
    rows.push_back(row_of("on" + how, prefix, on_work, limits_, place_.median_seconds(n_, on)));
    rows.push_back(row_of("pair" + how, prefix, both, limits_, place_.median_seconds(n_, pair)));
  };
  KvCache cache = decoder_.make_cache(prefix + 1);
  decoder_.forward(ids, &cache);
  measure_on("", [&] {
    on_V = decoder_.forward(std::span(&token, 1), &cache);
    cache.truncate(prefix);
  });
  rows.push_back(row_of("off", prefix, off_work, limits_, place_.median_seconds(n_, off)));
  if (!with_graphs) return;
  StepGraphs graphs(decoder_, prefix + 1);
  decoder_.forward(ids, &graphs.cache());
  measure_on(", recorded", [&] {
    on_V = graphs.step(token, nullptr);
    graphs.cache().truncate(prefix);
  });
}

void run(const Flags& flags) {
  const auto dtype = find_enum<DType>(flags.at("dtype"));
  if (!dtype) fail_usage("--dtype {}: one of {}", flags.at("dtype"), all_names<DType>());
  const Place place(flags.at("device"));
  NumericSwitches switches;
  switches.n_threads = std::stoi(flags.at("threads"));
  const NumericGuard guard(switches);
  const c10::InferenceMode inference;
  Warnings warnings;
  const std::string& file = flags.at("config");
  const ModelConfig config = parse_model_config(read_json_file(file), Json::object(), file, warnings);
  require_memory(config, *dtype, 2048, place.device());
  Json out = {{"config", file},
              {"architecture", config.architecture},
              {"n_params", config.n_params()},
              {"dtype", name_of(*dtype)},
              {"backend", flags.at("backend")},
              {"gpu", place.gpu() != nullptr ? place.gpu()->describe() : Json()}};
  Speed speed(place, config, *dtype, flags);
  out.update(speed.measure(numbers(flags.at("prefix")), flags.at("graphs") == "yes"));
  if (place.gpu() != nullptr) out["peak_device_bytes"] = place.gpu()->memory().peak;
  fmt::print("{}\n", out.dump(2));
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "kvdiv_device_speed: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvdiv_device_speed: {}\n", error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}
