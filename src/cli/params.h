#pragma once
// Flags that several commands share.
#include <optional>
#include <string>

#include "kvdiv/base/fields.h"

namespace kvdiv {

enum class DeviceChoice { cpu, cuda, automatic };
template <>
struct EnumNames<DeviceChoice> {
  static constexpr std::string_view what = "device";
  static constexpr std::array<std::pair<DeviceChoice, std::string_view>, 3> values{
      {{DeviceChoice::cpu, "cpu"}, {DeviceChoice::cuda, "cuda"}, {DeviceChoice::automatic, "auto"}}};
};

struct ModelParams {
  std::optional<std::string> model;
  DeviceChoice device = DeviceChoice::automatic;
  std::optional<int> threads;
  bool allow_tf32 = false, allow_reduced_reduction = false;
};

template <class V>
void describe_fields(V& v, ModelParams& p) {
  v.field("model", p.model, "a directory, a toy, an alias or org/name (default: toy-llama; see kvdiv models)");
  v.field("device", p.device, "where to compute; auto: a GPU if there is one");
  v.field("threads", p.threads, "CPU threads (default: one for small models, else all cores)");
  v.field("allow-tf32", p.allow_tf32, "GPU: let FP32 products round their operands to TF32");
  v.field("allow-reduced-reduction", p.allow_reduced_reduction,
          "GPU: let the vendor's FP16 and BF16 products add partial sums in 16 bits (eager PyTorch's default)");
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

/// Of the commands that measure: only their records can be gone on with.
struct ResumeParams {
  bool resume = false;
};

template <class V>
void describe_fields(V& v, ResumeParams& p) {
  v.field("resume", p.resume, "go on with the interrupted run in --output; starts it if there is none");
}

struct ShardParams {
  std::optional<std::string> shard;
};

template <class V>
void describe_fields(V& v, ShardParams& p) {
  v.field("shard", p.shard, "i/n: decode every n-th pair from the i-th on (i from 0); kvdiv merge joins the n results");
}

/// A result as a page to look at, and as tables for other programs.
struct PageParams {
  std::optional<std::string> html, csv;
};

template <class V>
void describe_fields(V& v, PageParams& p) {
  v.field("html", p.html, "write a page with charts to this file: one file, to be opened from disk");
  v.field("csv", p.csv, "write a table of each record type into this directory");
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
