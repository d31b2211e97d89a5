#include "measure.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/base/stderr.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/numerics/promises.h"
#include "kvdiv/numerics/switches.h"
#include "kvdiv/numerics/torch_info.h"
#include "kvdiv/report/environment.h"
#include "kvdiv/report/identity.h"
#include "kvdiv/report/malformed.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/result_directory.h"
#include "pages.h"
#include "terminal.h"

namespace kvdiv {
namespace {

/// Records go to the directory as they come; the report follows condition by condition.
class DirectorySink final : public RecordSink {
 public:
  using WriteReport = std::function<void(const ExperimentResult&)>;
  DirectorySink(ResultDirectory& directory, TerminalProgress& progress, WriteReport write)
      : directory_(directory), progress_(progress), write_(std::move(write)) {}
  void write(std::string_view type, const Json& record) override { directory_.append_line(type, record); }
  void commit() override { directory_.commit(); }
  void checkpoint(const ExperimentResult& so_far) override { write_(so_far); }

 private:
  std::optional<FinishedPair> next_finished(const std::string& pair_id) override {
    RecordsFile& records = directory_.records();
    std::optional<FinishedPair> found = records.take_pair(pair_id);
    if (!found && !is_at_end_) {
      is_at_end_ = true;
      if (records.n_taken() > 0 || !records.cut_note().empty())
        progress_.note(fmt::format("{} pairs were there{}", records.n_taken(),
                                   records.cut_note().empty() ? "" : "; dropped behind them: " + records.cut_note()));
    }
    return found;
  }
  ResultDirectory& directory_;
  TerminalProgress& progress_;
  WriteReport write_;
  bool is_at_end_ = false;
};

Json describe_model(const Session& s) {
  const ModelConfig& c = s.config;
  return {{"name", s.model.name},
          {"path", s.model.path.string()},
          {"architecture", c.architecture},
          {"traits", to_json_value(c.traits)},
          {"sizes", to_json_value(c.sizes)},
          {"rope_theta", c.rope_theta},
          {"rms_norm_eps", c.rms_norm_eps},
          {"eos_ids", c.eos_ids},
          {"n_params", c.n_params()},
          {"weights_sha256", s.checkpoint.weights_sha256()},
          {"dtypes_on_disk", s.checkpoint.dtypes_on_disk()},
          {"declared_dtype", c.declared_dtype.empty() ? Json(nullptr) : Json(c.declared_dtype)},
          {"cast", nullptr}};
}

Json describe_numerics(const MeasurePlan& plan, const DeviceModule* gpu) {
  Json out;
  Json dtypes = Json::array();
  for (const DType d : plan.dtypes) dtypes.push_back(name_of(d));
  out["dtype"] = std::move(dtypes);
  out["backend"] = plan.params.at("backend");
  for (const Json& backend : plan.params.at("backend"))
    out["bits_depend_on_threads"][backend.get<std::string>()] = bits_depend_on_threads(backend.get<std::string>());
  out["attention"] = plan.attention;
  out["cache_dtype"] = "compute dtype";
  out["softmax_dtype"] = "float32 (float64 in a float64 run)";
  out["metrics_dtype"] = "float64";
  out.update(read_numerics());
  if (gpu != nullptr) out.update(gpu->read_numerics());
  return out;
}

Json describe_data(const Session& s) {
  std::int64_t n_bos = 0;
  if (s.tokenizer && s.tokenizer->bos_id())
    for (const PromptItem& p : s.prompts) n_bos += p.ids.front() == *s.tokenizer->bos_id();
  return {{"source", s.prompt_set.source},
          {"sha256", s.prompt_set.sha256},
          {"n_prompts", s.prompts.size()},
          {"n_prompts_with_bos", s.tokenizer ? Json(n_bos) : Json(nullptr)},
          {"indices", s.prompt_set.indices}};
}

Json start_report(const Invocation& invocation, const MeasurePlan& plan, const Session& s) {
  Json r;
  r["schema"] = "kvdiv/report/1";
  r["complete"] = false;
  r["created_utc"] = utc_stamp();
  r["argv"] = invocation.argv;
  r["tool"] = describe_tool(libtorch_version());
  r["environment"] = describe_environment(s.n_threads, s.gpu != nullptr ? s.gpu->describe() : Json());
  r["numerics"] = describe_numerics(plan, s.gpu);
  r["model"] = describe_model(s);
  r["data"] = describe_data(s);
  r["experiment"] = {{"name", plan.experiment}, {"params", plan.params}};
  if (plan.shard.count > 1) r["experiment"]["shard"] = {{"index", plan.shard.index}, {"count", plan.shard.count}};
  return r;
}

/// The counts over all dtypes of the run, and those of each.
Json total_cast(const Json& by_dtype) {
  std::int64_t overflow = 0, flushed_to_zero = 0;
  for (const Json& counts : by_dtype) {
    overflow += counts.at("overflow").get<std::int64_t>();
    flushed_to_zero += counts.at("flushed_to_zero").get<std::int64_t>();
  }
  return {{"overflow", overflow}, {"flushed_to_zero", flushed_to_zero}, {"by_dtype", by_dtype}};
}

void put_result(Json& report, const ExperimentResult& result, const Session& session, double seconds) {
  report["controls"] = result.controls;
  report["conditions"] = result.conditions;
  report["verdict"] = result.verdict;
  report["warnings"] = to_json_value(session.warnings.all());
  Json extra = result.extra;
  if (extra.contains("cast")) {
    report["model"]["cast"] = total_cast(extra["cast"]);
    extra.erase("cast");
  }
  report.update(extra);
  report["timing"] = {{"total_s", seconds}, {"peak_rss_bytes", peak_rss_bytes()}};
  if (session.gpu != nullptr) report["timing"]["peak_device_bytes"] = session.gpu->memory().peak;
  report["complete"] = result.complete;
}

std::string default_output(const MeasurePlan& plan, const Session& s) {
  // The model's name without its organisation; of a directory, its last component as it really is ("." has none).
  const bool is_directory = std::filesystem::is_directory(s.model.name);
  std::string name = is_directory ? std::filesystem::canonical(s.model.name).filename().string() : s.model.name;
  name = name.substr(name.find_last_of('/') + 1);
  return fmt::format("results/{}-{}-{}", plan.experiment, name, utc_stamp_compact());
}

int exit_code(bool complete, const Json& verdict) {
  if (!complete) return static_cast<int>(ErrorKind::interrupted);
  const std::string kind = verdict.value("kind", "");
  if (kind == "violated") return static_cast<int>(ErrorKind::violated);
  return kind == "invalid" ? static_cast<int>(ErrorKind::invalid_measurement) : 0;
}

/// What --resume finds there must be this run: the same in all that is measured and in all it is measured with.
void require_same_run(const ResultDirectory& directory, const Json& report) {
  const Json& there = directory.previous();
  const Json here = Json::parse(report.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::vector<KeyDifference> differences = measured_differences(there, here);
  if (differences.empty()) differences = environment_differences(there, here);
  if (differences.empty()) differences = shard_differences(there, here);
  if (!differences.empty())
    fail_usage("--resume: {} holds another run: {}; use the same settings and machine, or another --output",
               directory.path().string(), describe_differences(differences, "there", "here"));
}

/// A complete report whose records are all there: a power cut may keep the one and not the other.
bool is_whole(ResultDirectory& directory) {
  const Json& report = directory.previous();
  return report.value("complete", false) &&
         report.value("/records/n_bytes"_json_pointer, std::int64_t{-1}) == directory.records().size();
}

Existing what_to_do(const OutputParams& output, bool resume) {
  if (resume && !output.output) fail_usage("--resume: say with --output which directory to go on with");
  return resume ? Existing::resume : output.overwrite ? Existing::replace : Existing::refuse;
}

/// --resume of a run that has nothing left to do.
int show_whole(const Invocation& invocation, const OutputParams& output, const ResultDirectory& directory,
               TerminalProgress& progress) {
  progress.note(fmt::format("{} is complete: nothing to go on with", directory.path().string()));
  write_pages(invocation, {directory.path()});
  return reading((directory.path() / kReportFile).string(), [&] {
    const Json& report = directory.previous();
    fmt::print("{}", render_report(report, output.json));
    return exit_code(true, report.value("verdict", Json::object()));
  });
}

}  // namespace

int measure(const Invocation& invocation, const MeasurePlan& plan, Session& session,
            const std::function<ExperimentResult(Context&)>& body) {
  const auto output = take<OutputParams>(invocation);
  const Existing existing = what_to_do(output, take<ResumeParams>(invocation).resume);
  require_page_places(invocation);
  for (const Json& backend : plan.params.at("backend"))
    make_ops(backend.get<std::string>(), plan.attention, session.device());  // refused before anything is written
  session.require_room(plan.max_new_tokens);
  for (const DType dtype : plan.dtypes)
    require_memory(session.config, dtype, longest_prompt(session.prompts) + plan.max_new_tokens, session.device());
  const NumericGuard guard(session.switches);
  ResultDirectory directory(output.output.value_or(default_output(plan, session)), existing);
  TerminalProgress progress(output.quiet ? Verbosity::quiet : output.verbose ? Verbosity::verbose : Verbosity::normal);
  progress.note(
      fmt::format("{}: {}, {} prompts{}, {} thread{} → {}", plan.experiment, session.model.name, session.prompts.size(),
                  plan.shard.count > 1 ? fmt::format(" (shard {}/{})", plan.shard.index, plan.shard.count) : "",
                  session.n_threads, session.n_threads == 1 ? "" : "s", directory.path().string()));
  const auto start = std::chrono::steady_clock::now();
  Json report = start_report(invocation, plan, session);
  const bool is_resumed = !directory.previous().is_null();
  if (is_resumed) {
    const bool is_done = reading((directory.path() / kReportFile).string(), [&] {
      require_same_run(directory, report);
      report["created_utc"] = directory.previous().value("created_utc", report["created_utc"]);
      return is_whole(directory);
    });
    if (is_done) return show_whole(invocation, output, directory, progress);
  }
  const auto write = [&](const ExperimentResult& result) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    put_result(report, result, session, seconds);
    report["timing"]["n_pairs_resumed"] = directory.records().n_taken();
    directory.write_report(report);
  };
  if (!is_resumed) write({});
  DirectorySink sink(directory, progress, write);
  Context context{
      session.config,
      session.prompts,
      [&](DType d, const std::string& backend, const std::string& attention) {
        const auto loading = std::chrono::steady_clock::now();
        LoadedModel model = session.load(d, backend, attention);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - loading).count();
        if (output.verbose)
          progress.note(fmt::format("loaded {} for {} ({}, {}) in {:.1f} s; {} overflowed, {} flushed to zero",
                                    session.model.name, backend, name_of(d), attention, seconds, model.cast.overflow,
                                    model.cast.flushed_to_zero));
        return model;
      },
      {},
      sink,
      session.warnings,
      progress,
      {},
      session.device(),
      plan.shard};
  if (session.tokenizer) context.detokenize = [&](std::span<const TokenId> ids) { return session.detokenize(ids); };
  const ExperimentResult result = body(context);
  if (result.complete) {
    directory.records().cut();
    directory.records().sync();
    report["records"] = {{"n_bytes", directory.records().size()}};
  }
  write(result);
  write_pages(invocation, {directory.path()});
  fmt::print("{}", render_report(report, output.json));
  if (!result.complete)
    write_stderr(fmt::format("kvdiv: interrupted; go on with the same command and --resume --output {}\n",
                             directory.path().string()));
  return exit_code(result.complete, result.verdict);
}

}  // namespace kvdiv
