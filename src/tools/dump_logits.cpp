// A development tool: the logits of both arms under the forced clock, as raw little-endian float64 [steps, vocab], for
// scripts/compare_hf.py. 16- and 32-bit logits are converted exactly.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "kvdiv/base/error.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/files.h"
#include "kvdiv/model/weights.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/switches.h"

namespace {

using namespace kvdiv;

using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags{{"dtype", "float16"},   {"max-new-tokens", "64"}, {"threads", "1"},    {"prefill-chunk", "0"},
              {"attention", "eager"}, {"device", "cpu"},        {"backend", "torch"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[std::string(argv[i]).substr(2)] = argv[i + 1];
  for (const char* needed : {"model", "ids", "out"})
    if (!flags.contains(needed)) fail_usage("kvdiv_dump_logits: --{} is missing", needed);
  return flags;
}

void dump(const Flags& flags) {
  const auto dtype = find_enum<DType>(flags.at("dtype"));
  if (!dtype) fail_usage("--dtype {}: one of {}", flags.at("dtype"), all_names<DType>());
  const c10::Device device = flags.at("device") == "cpu" ? c10::Device(c10::kCPU) : load_cuda().device();
  NumericSwitches switches;
  switches.n_threads = std::stoi(flags.at("threads"));
  const NumericGuard guard(switches);
  Warnings warnings;
  const Checkpoint checkpoint = Checkpoint::open(flags.at("model"));
  const ModelConfig config =
      parse_model_config(checkpoint.config(), checkpoint.generation_config(), "config.json", warnings);
  const LoadedModel model = load_model(checkpoint, config, *dtype,
                                       make_ops(flags.at("backend"), flags.at("attention"), device), warnings, device);

  PairRequest request;
  const auto ids = read_json_file(flags.at("ids")).get<std::vector<TokenId>>();
  request.prompt = ids;
  request.max_new_tokens = std::stoll(flags.at("max-new-tokens"));
  request.prefill_chunk = std::stoll(flags.at("prefill-chunk"));
  request.clock = Clock::forced;
  SamplingParams greedy;
  greedy.strategy = Strategy::greedy;
  request.choose = [&](std::span<const double> logits, std::int64_t) { return choose_token(logits, greedy, 0.0); };
  std::ofstream on(flags.at("out") + ".on.f64", std::ios::binary), off(flags.at("out") + ".off.f64", std::ios::binary);
  const auto write = [](std::ofstream& file, std::span<const double> values) {
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  };
  const PairOutcome outcome = decode_pair(model.decoder, request, [&](const StepView& step) {
    write(on, step.logits_on());
    write(off, step.logits_off());
  });
  std::ofstream(flags.at("out") + ".tokens.json") << Json(outcome.tokens_on).dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  try {
    dump(parse(argc, argv));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "kvdiv_dump_logits: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvdiv_dump_logits: {}\n", error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}
