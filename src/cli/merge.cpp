#include "merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/numerics/torch_info.h"
#include "kvdiv/report/environment.h"
#include "kvdiv/report/identity.h"
#include "kvdiv/report/pair_reader.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/result_directory.h"
#include "pages.h"
#include "params.h"
#include "terminal.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

struct ShardResult {
  fs::path directory;
  Json report;
  Shard shard;
};

ShardResult read_shard(const fs::path& directory) {
  if (!fs::is_directory(directory))
    fail_unreadable("{}: {}", directory.string(), fs::exists(directory) ? "not a result directory" : "is not there");
  ShardResult result{directory, read_report(directory), {}};
  const Json experiment = result.report.value("experiment", Json::object());
  if (!experiment.is_object() || experiment.value("name", Json()) != "run")
    fail_usage("{}: not a result of kvdiv run: only its shards can be joined", directory.string());
  if (!result.report.value("complete", false))
    fail_unreadable("{}: was interrupted; finish it first, with the same command and --resume", directory.string());
  if (const Json shard = experiment.value("shard", Json()); shard.is_object()) {
    from_json_value(shard.value("index", Json()), result.shard.index, "experiment.shard.index");
    from_json_value(shard.value("count", Json()), result.shard.count, "experiment.shard.count");
  }
  return result;
}

/// By index; each of them once.
std::vector<ShardResult> read_shards(const std::vector<std::string>& directories) {
  if (directories.empty()) fail_usage("kvdiv merge takes the result directories of all shards; see kvdiv merge --help");
  std::vector<ShardResult> shards;
  for (const std::string& directory : directories) shards.push_back(read_shard(directory));
  const std::int64_t count = shards.front().shard.count;
  for (const ShardResult& s : shards)
    if (s.shard.count != count)
      fail_usage("{} is one of {} shards, {} one of {}: not of one run", shards.front().directory.string(), count,
                 s.directory.string(), s.shard.count);
  std::stable_sort(shards.begin(), shards.end(),
                   [](const ShardResult& a, const ShardResult& b) { return a.shard.index < b.shard.index; });
  for (std::size_t i = 0; i + 1 < shards.size(); ++i)
    if (shards[i].shard.index == shards[i + 1].shard.index)
      fail_usage("{} and {} are both shard {} of {}: give each once", shards[i].directory.string(),
                 shards[i + 1].directory.string(), shards[i].shard.index, count);
  for (std::int64_t i = 0; i < count; ++i)
    if (i >= std::ssize(shards) || shards[static_cast<std::size_t>(i)].shard.index != i)
      fail_usage("shard {} of {} is missing: give the directories of all", i, count);
  return shards;
}

/// All that is measured must be the same; what it was measured with too, unless forced.
void require_alike(const std::vector<ShardResult>& shards, bool force, Warnings& warnings) {
  const ShardResult& first = shards.front();
  for (const ShardResult& other : shards) {
    const std::string in_first = "in " + first.directory.string(), in_other = "in " + other.directory.string();
    if (const auto d = measured_differences(first.report, other.report); !d.empty())
      fail_usage("not shards of one run: {}", describe_differences(d, in_first, in_other));
    const auto d = environment_differences(first.report, other.report);
    if (d.empty()) continue;
    const std::string what = describe_differences(d, in_first, in_other);
    if (!force) fail_usage("unlike environments: {}; their bits may differ: --force joins them all the same", what);
    warnings.add(WarningCode::unlike_environments, what);
  }
}

/// Removes what it has begun unless it was finished.
class Output {
 public:
  Output(fs::path path, Existing existing) : directory_(std::move(path), existing) {}
  ~Output() {
    if (is_finished_) return;
    std::error_code ignored;
    fs::remove(directory_.path() / kRecordsFile, ignored);
    fs::remove(directory_.path() / kReportFile, ignored);
    fs::remove(directory_.path(), ignored);  // if nothing else is in it
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ResultDirectory& directory() { return directory_; }
  void finish(const Json& report) {
    directory_.write_report(report);
    is_finished_ = true;
  }

 private:
  ResultDirectory directory_;
  bool is_finished_ = false;
};

fs::path output_of(const OutputParams& output, const std::vector<ShardResult>& shards) {
  if (!output.output) fail_usage("--output: say where the joined result is to go");
  std::error_code ignored;
  for (const ShardResult& s : shards)
    if (fs::equivalent(*output.output, s.directory, ignored))
      fail_usage("--output {}: is one of the shards", *output.output);
  return *output.output;
}

/// Joins records and conditions: the pairs go round the shards.
ExperimentResult join(const JoinShards& join_run, const std::vector<ShardResult>& shards, ResultDirectory& to,
                      Progress& progress, Warnings& warnings) {
  ShardsInput input;
  const Json& first = shards.front().report;
  input.params = first["experiment"].value("params", Json());
  from_json_value(first.value("/model/sizes/n_layers"_json_pointer, Json()), input.n_layers, "model.sizes.n_layers");
  from_json_value(first.value("/data/n_prompts"_json_pointer, Json()), input.n_prompts, "data.n_prompts");
  std::vector<Json> reports;
  std::vector<PairReader> readers;
  std::int64_t n_total = 0, n_done = 0;
  for (const ShardResult& s : shards) {
    reports.push_back(s.report);
    readers.emplace_back(s.directory / kRecordsFile);
    for (const Json& c : s.report.value("conditions", Json::array())) n_total += c.value("n_pairs", std::int64_t{0});
  }
  input.shard_reports = reports;
  input.next_pair = [&](std::size_t shard) {
    if (interrupted()) fail(ErrorKind::interrupted, "interrupted; nothing was written");
    PairReader& reader = readers[shard];
    std::optional<FinishedPair> pair = reader.next();
    if (!pair)
      fail_unreadable("{}: {}: fewer pairs than its report has; make this shard again", reader.file().string(),
                      reader.problem().empty() ? "ends too early" : reader.problem());
    to.append_text(reader.text());
    to.commit();
    progress.update({++n_done, n_total, 0.0, 0.0});
    return std::move(*pair);
  };
  progress.stage("joining pairs");
  ExperimentResult result = join_run(input, warnings);
  progress.end_stage();
  for (PairReader& reader : readers)
    if (reader.next() || !reader.problem().empty())
      fail_unreadable("{}: more records than its report has; make this shard again", reader.file().string());
  return result;
}

Json joined_report(const Invocation& invocation, const std::vector<ShardResult>& shards, const ExperimentResult& result,
                   const Warnings& warnings) {
  Json report = shards.front().report;
  report["created_utc"] = utc_stamp();
  report["argv"] = invocation.argv;
  report["tool"] = describe_tool(libtorch_version());
  report["experiment"].erase("shard");
  report["controls"] = result.controls;
  report["conditions"] = result.conditions;
  report["verdict"] = result.verdict;
  report["warnings"] = to_json_value(warnings.all());
  report.update(result.extra);
  double seconds = 0.0;
  Json of_shards = Json::array();
  for (const ShardResult& s : shards) {
    const Json timing = s.report.value("timing", Json::object());
    seconds += timing.value("total_s", 0.0);
    of_shards.push_back({{"index", s.shard.index},
                         {"created_utc", s.report.value("created_utc", "")},
                         {"total_s", timing.value("total_s", Json())},
                         {"environment", s.report.value("environment", Json())}});
  }
  report["timing"] = {{"total_s", seconds}, {"shards", of_shards}};
  report["complete"] = true;
  return report;
}

}  // namespace

Shard parse_shard(const std::optional<std::string>& text) {
  if (!text) return {};
  Shard shard{-1, 0};
  const char* const end = text->data() + text->size();
  const auto index = std::from_chars(text->data(), end, shard.index);
  if (index.ec == std::errc() && index.ptr != end && *index.ptr == '/') {
    const auto count = std::from_chars(index.ptr + 1, end, shard.count);
    if (count.ec == std::errc() && count.ptr == end && shard.index >= 0 && shard.index < shard.count) return shard;
  }
  fail_usage("--shard {}: expected i/n with i from 0 to n − 1, as 0/4, 1/4, 2/4, 3/4", *text);
}

int merge_command(const Invocation& invocation, const JoinShards& join_run) {
  const auto output = take<OutputParams>(invocation);
  require_page_places(invocation);
  const std::vector<ShardResult> shards = read_shards(invocation.positionals);
  Warnings warnings;
  require_alike(shards, take<MergeParams>(invocation).force, warnings);
  TerminalProgress progress(output.quiet ? Verbosity::quiet : output.verbose ? Verbosity::verbose : Verbosity::normal);
  Output to(output_of(output, shards), output.overwrite ? Existing::replace : Existing::refuse);
  progress.note(fmt::format("merge: {} shards → {}", shards.size(), to.directory().path().string()));
  const ExperimentResult result = join(join_run, shards, to.directory(), progress, warnings);
  Json report = joined_report(invocation, shards, result, warnings);
  RecordsFile& records = to.directory().records();
  records.sync();
  report["records"] = {{"n_bytes", records.size()}};
  to.finish(report);
  write_pages(invocation, {to.directory().path()});
  fmt::print("{}", render_report(report, output.json));
  return result.verdict.value("kind", "") == "invalid" ? static_cast<int>(ErrorKind::invalid_measurement) : 0;
}

}  // namespace kvdiv
