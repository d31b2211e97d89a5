#pragma once
// Flags that several commands share.
#include <optional>
#include <string>

#include "kvdiv/base/fields.h"

namespace kvdiv {

enum class Device { cpu, cuda, automatic };
template <>
struct EnumNames<Device> {
  static constexpr std::string_view what = "device";
  static constexpr std::array<std::pair<Device, std::string_view>, 3> values{
      {{Device::cpu, "cpu"}, {Device::cuda, "cuda"}, {Device::automatic, "auto"}}};
};

struct ModelParams {
  std::optional<std::string> model;
  Device device = Device::automatic;
  std::optional<int> threads;
};

template <class V>
void describe_fields(V& v, ModelParams& p) {
  v.field("model", p.model, "a directory, a toy, an alias or org/name (default: toy-llama; see kvdiv models)");
  v.field("device", p.device, "where to compute");
  v.field("threads", p.threads, "CPU threads (default: one for small models, else all cores)");
}

struct OutputParams {
  std::optional<std::string> output;
  bool overwrite = false;
  bool json = false, quiet = false, verbose = false;
};

template <class V>
void describe_fields(V& v, OutputParams& p) {
  v.field("output", p.output, "result directory (default: results/<command>-<model>-<UTC stamp>)");
  v.field("overwrite", p.overwrite, "replace a result that is there");
  v.field("json", p.json, "print the report as JSON");
  v.field("quiet", p.quiet, "no progress and no notes on stderr");
  v.field("verbose", p.verbose, "more notes on stderr");
}

struct ConfigParams {
  std::optional<std::string> config;
  bool print_config = false;
};

template <class V>
void describe_fields(V& v, ConfigParams& p) {
  v.field("config", p.config, "JSON file with the same names as the flags; flags win");
  v.field("print-config", p.print_config, "print the effective configuration as JSON and stop");
}

struct JsonParams {
  bool json = false;
};

template <class V>
void describe_fields(V& v, JsonParams& p) {
  v.field("json", p.json, "print JSON");
}

}  // namespace kvdiv
