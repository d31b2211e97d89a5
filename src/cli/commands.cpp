// The table of commands: a new one is a row here.
#include <fmt/format.h>

#include <algorithm>

#include "analysis.h"
#include "check.h"
#include "command.h"
#include "kvdiv/experiments/boundary.h"
#include "kvdiv/experiments/drift.h"
#include "kvdiv/experiments/falsify.h"
#include "kvdiv/experiments/mitigate.h"
#include "kvdiv/experiments/noise.h"
#include "kvdiv/experiments/paper.h"
#include "kvdiv/experiments/patch.h"
#include "kvdiv/experiments/run.h"
#include "kvdiv/experiments/run_merge.h"
#include "kvdiv/experiments/selftest.h"
#include "kvdiv/experiments/shapes.h"
#include "kvdiv/experiments/trace.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/records_reader.h"
#include "kvdiv/report/result_directory.h"
#include "measure.h"
#include "merge.h"
#include "params.h"
#include "plain_commands.h"

namespace kvdiv {
namespace {

/// The effective configuration, to be fed back with --config.
template <Described... S>
Json effective(const S&... structs) {
  Json out = Json::object();
  (out.update(to_json_value(structs)), ...);
  return out;
}

template <Described R>
R read_record(const Json& json, const std::string& where) {
  R record;
  from_json_value(json, record, where);
  return record;
}

/// Refuses, before anything is written, what the chosen device does not have.
template <Described P>
void check_device(c10::Device, const P&) {}
void check_device(c10::Device device, const RunParams& params) {
  if (params.cuda_graph && device.is_cpu())
    fail_usage("--cuda-graph: only a GPU's launches can be recorded; use it with --device cuda");
}
void check_device(c10::Device device, const MitigateParams& params) { require_remedies(device, params); }

template <Described P>
void check_shard(const Shard&, std::size_t, const P&) {}
void check_shard(const Shard& shard, std::size_t n_prompts, const RunParams& params) {
  require_shard(params, n_prompts, shard);
}

/// A command that measures on a model: session, result directory and report around one function.
template <Described P>
int measuring_command(const Invocation& invocation, const char* name, std::int64_t (*n_steps)(const P&),
                      const std::function<ExperimentResult(Context&, const P&)>& experiment) {
  const auto model = take<ModelParams>(invocation);
  auto prompts = take<PromptParams>(invocation);
  const auto params = take<P>(invocation);
  validate(params);
  if (take<ConfigParams>(invocation).print_config) {
    resolve_defaults(prompts);
    fmt::print("{}\n", effective(model, prompts, params).dump(2));
    return 0;
  }
  const auto session = open_session(model, prompts);
  check_device(session->device(), params);
  MeasurePlan plan{name,
                   effective(prompts, params),
                   params.dtype,
                   params.attention,
                   n_steps(params),
                   parse_shard(take<ShardParams>(invocation).shard)};
  check_shard(plan.shard, session->prompts.size(), params);
  return measure(invocation, plan, *session, [&](Context& context) { return experiment(context, params); });
}

int drift_command(const Invocation& invocation) {
  return measuring_command<DriftParams>(
      invocation, "drift", [](const DriftParams& p) { return std::max(p.step + 1, p.max_steps); }, run_drift);
}

int patch_command(const Invocation& invocation) {
  return measuring_command<PatchParams>(
      invocation, "patch", [](const PatchParams& p) { return p.max_steps; }, run_patch);
}

int falsify_command(const Invocation& invocation) {
  return measuring_command<FalsifyParams>(
      invocation, "falsify", [](const FalsifyParams& p) { return decodes_pairs(p) ? p.max_new_tokens : 0; },
      [](Context& context, const FalsifyParams& p) { return run_falsify(context, p); });
}

int boundary_command(const Invocation& invocation) {
  if (invocation.positionals.size() != 1)
    fail_usage("kvdiv boundary takes one result directory of kvdiv run; see kvdiv boundary --help");
  std::filesystem::path source = invocation.positionals.front();
  if (source.filename() == kReportFile) source = source.parent_path();
  return analyse(invocation, "boundary", source, [&](const Json& report) {
    PairTable table;
    for_each_record(source, [&](const std::string& type, const Json& json) {
      const std::string where = (source / kRecordsFile).string();
      if (type == StepRecord::type) table.add(read_record<StepRecord>(json, where));
      if (type == PairRecord::type) table.add(read_record<PairRecord>(json, where));
    });
    if (table.rows().empty())
      fail_unreadable("{}: a result of kvdiv {} without a finished pair; give one of kvdiv run", source.string(),
                      report.value("experiment", Json::object()).value("name", "?"));
    return analyse_boundary(table);
  });
}

int noise_command(const Invocation& invocation) {
  return measuring_command<NoiseParams>(
      invocation, "noise", [](const NoiseParams& p) { return p.max_steps; }, run_noise);
}

int mitigate_command(const Invocation& invocation) {
  return measuring_command<MitigateParams>(
      invocation, "mitigate", [](const MitigateParams& p) { return p.max_steps; }, run_mitigate);
}

/// The model's sizes are what it takes; prompts are read and not decoded.
int shapes_command(const Invocation& invocation) {
  return measuring_command<ShapesParams>(
      invocation, "shapes", [](const ShapesParams&) { return std::int64_t{0}; }, run_shapes);
}

int trace_command(const Invocation& invocation) {
  return measuring_command<TraceParams>(
      invocation, "trace", [](const TraceParams& p) { return p.max_steps; }, run_trace);
}

int paper_command(const Invocation& invocation) {
  const Json published = read_json_file(find_data_paths().configs / "paper_published.json");
  return measuring_command<PaperParams>(
      invocation, "paper", [](const PaperParams& p) { return p.max_new_tokens; },
      [&](Context& context, const PaperParams& p) { return run_paper(context, p, published); });
}

int run_command(const Invocation& invocation) {
  return measuring_command<RunParams>(
      invocation, "run", [](const RunParams& p) { return p.max_new_tokens; }, run_experiment);
}

struct SelftestModels {
  std::vector<std::string> model{"toy-llama", "toy-mistral", "toy-gemma2"};
  std::optional<int> threads;
};

template <class V>
void describe_fields(V& v, SelftestModels& m) {
  v.field("model", m.model, "models to plant faults in, as of the other commands; may be repeated");
  v.field("threads", m.threads, "CPU threads (default: one for small models, else all cores)");
}

int selftest_command(const Invocation& invocation) {
  const auto names = take<SelftestModels>(invocation);
  auto prompts = take<PromptParams>(invocation);
  const auto params = take<SelftestParams>(invocation);
  validate(params);
  resolve_defaults(prompts);
  if (!prompts.limit) prompts.limit = 2;  // as many as are used
  if (take<ConfigParams>(invocation).print_config) {
    fmt::print("{}\n", effective(names, prompts, params).dump(2));
    return 0;
  }
  if (names.model.empty()) fail_usage("--model: the list is empty");
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<SelftestModel> models;
  for (const std::string& name : names.model) {
    PromptParams own = prompts;
    sessions.push_back(open_session({name, DeviceChoice::cpu, names.threads}, own));
    Session& s = *sessions.back();
    models.push_back({s.model.name, s.config, s.prompts,
                      [&s](DType d, const std::string& b, const std::string& a) { return s.load(d, b, a); }});
  }
  // The prompts are cut, so that what must fit is their beginning.
  MeasurePlan plan{"selftest", effective(names, prompts, params), params.dtype, "eager", params.max_steps};
  return measure(invocation, plan, *sessions.front(),
                 [&](Context& context) { return run_selftest(context, models, params); });
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"run",
       "decode with cache ON and OFF side by side: metrics, flips, accuracy, verdict",
       all_fields<ModelParams, RunParams, ShardParams, PromptParams, OutputParams, ResumeParams, PageParams,
                  ConfigParams>(),
       "",
       {"kvdiv run --model toy-gemma2 --dtype float16,float32 --limit 4 --max-new-tokens 16",
        "kvdiv run --model mistral --strategy greedy,top-k --seeds 5 --limit 100 --output results/mistral",
        "kvdiv run --model mistral --shard 0/4 --output results/mistral-0 --resume"},
       run_command},
      {"drift",
       "per layer and head: how far hidden states and attention weights of the arms are apart at one decode step",
       all_fields<ModelParams, DriftParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv drift --model toy-gemma2 --limit 12", "kvdiv drift --model mistral --samples 600 --step 1",
        "kvdiv drift --model toy-mistral --limit 4 --unaligned"},
       drift_command},
      {"falsify",
       "five attempts to break the explanation by rounding: dot products, propagation, projection, flips, wider dtypes",
       all_fields<ModelParams, FalsifyParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv falsify --part dot",
        "kvdiv falsify --model toy-mistral --limit 4 --max-new-tokens 8 --part projection,flip-kl,fp32",
        "kvdiv falsify --model mistral --part fp32 --samples 600"},
       falsify_command},
      {"boundary",
       "early and late flips, correlations, margins: from the records of a run, without decoding",
       all_fields<OutputParams, PageParams>(),
       "DIR",
       {"kvdiv boundary results/mistral --html boundary.html",
        "kvdiv boundary results/mistral --json --output results/mistral-boundary"},
       boundary_command},
      {"patch",
       "put K, V or the residual stream of one arm into the other: what the difference is made of",
       all_fields<ModelParams, PatchParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv patch --model toy-mistral --limit 2 --max-steps 9",
        "kvdiv patch --model toy-mistral --limit 2 --what k,v --layers 2,3 --heads 0 --step 4 --positions stored",
        "kvdiv patch --model mistral --samples 600 --what residual --step 0,1"},
       patch_command},
      {"trace",
       "errors of K and V over layers, heads, positions and steps; where they are born; GQA amplification",
       all_fields<ModelParams, TraceParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv trace --model toy-mistral --limit 2 --max-steps 5 --step 1,4",
        "kvdiv trace --model toy-gemma2 --limit 1 --max-steps 9 --step 1,8 --no-gqa"},
       trace_command},
      {"noise",
       "noise of known size on K and V: flip probability against size, beside FP16's own error",
       all_fields<ModelParams, NoiseParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv noise --model toy-mistral --limit 2 --max-steps 8",
        "kvdiv noise --model toy-llama --limit 4 --what v --kind mantissa --mantissa-bits 7,3,2"},
       noise_command},
      {"mitigate",
       "remedies with their price: KL, flips, speed, bytes; the smallest set of operations to fix",
       all_fields<ModelParams, MitigateParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv mitigate --model toy-llama --limit 2 --max-steps 4",
        "kvdiv mitigate --model mistral --limit 20 --remedy invariant,float32,refresh:4,kv-int8 --max-kl 1e-6"},
       mitigate_command},
      {"shapes",
       "at which numbers of rows, keys and hidden keys a backend's result for the same row changes bits",
       all_fields<ModelParams, ShapesParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv shapes --model toy-mistral --dtype float16,bfloat16 --max-rows 128",
        "kvdiv shapes --model mistral --backend torch --backend invariant --operation linear,attention"},
       shapes_command},
      {"paper",
       "the five experiments of the paper in one process; every published number beside the measured one",
       all_fields<ModelParams, PaperParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv paper --model toy-mistral --limit 1 --seeds 1 --max-new-tokens 8 --max-steps 4",
        "kvdiv paper --model mistral --output results/paper-mistral"},
       paper_command,
       "paper.json"},
      {"selftest",
       "plants known faults one at a time, and looks at healthy runs: every one must be named for what it is",
       all_fields<SelftestModels, SelftestParams, PromptParams, OutputParams, ResumeParams, PageParams, ConfigParams>(),
       "",
       {"kvdiv selftest --model toy-llama --dtype float16",
        "kvdiv selftest --model toy-mistral --dtype bfloat16 --max-steps 4 --json"},
       selftest_command},
      {"check",
       "hold a result against a contract: 0 it holds, 1 violated, 4 invalid; for CI",
       all_fields<CheckParams>(),
       "DIR",
       {"kvdiv check results/mistral --contract configs/contracts/float16.json --junit check.xml",
        "kvdiv check results/new --contract configs/contracts/float16.json --against results/old --json"},
       check_command},
      {"merge",
       "join the shards of one run (kvdiv run --shard i/n) into the report that one run would have given",
       all_fields<MergeParams, OutputParams, PageParams>(),
       "DIR",
       {"kvdiv merge results/mistral-0 results/mistral-1 --output results/mistral",
        "kvdiv merge results/shard-* --output results/whole --json"},
       [](const Invocation& invocation) { return merge_command(invocation, merge_shards); }},
      {"report",
       "show a result again without decoding: as text, as a page with charts, as tables; two results side by side",
       all_fields<JsonParams, PageParams>(),
       "DIR",
       {"kvdiv report results/mistral", "kvdiv report results/mistral --json",
        "kvdiv report results/mistral --html mistral.html --csv tables",
        "kvdiv report results/mistral results/other --html both.html"},
       report_command},
      {"models",
       "list the models that can be run here",
       all_fields<JsonParams>(),
       "",
       {"kvdiv models", "kvdiv models --json"},
       models_command},
      {"env",
       "print the environment as recorded in reports",
       all_fields<JsonParams>(),
       "",
       {"kvdiv env", "kvdiv env --json"},
       env_command},
  };
  return table;
}

}  // namespace kvdiv
