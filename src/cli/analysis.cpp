#include "analysis.h"

#include <fmt/format.h>

#include "kvdiv/base/stderr.h"
#include "kvdiv/numerics/torch_info.h"
#include "kvdiv/report/environment.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/result_directory.h"
#include "pages.h"
#include "params.h"

namespace kvdiv {
namespace {

void warn_of_source(const std::filesystem::path& source, const Json& report, Warnings& warnings) {
  if (!report.value("complete", false))
    warnings.add(WarningCode::source_incomplete, source.string() + " was interrupted: what is there is analysed");
  if (report.contains("verdict") && report["verdict"].is_object() && report["verdict"].value("kind", "") == "invalid")
    warnings.add(WarningCode::source_invalid, source.string() + ": a control failed in this run");
}

std::string default_output(const std::string& name, const Json& report) {
  std::string model = report.contains("model") ? report["model"].value("name", "model") : "model";
  while (model.size() > 1 && model.back() == '/') model.pop_back();
  return fmt::format("results/{}-{}-{}", name, model.substr(model.find_last_of('/') + 1), utc_stamp_compact());
}

}  // namespace

int analyse(const Invocation& invocation, const std::string& name, const std::filesystem::path& source,
            const std::function<ExperimentResult(const Json& source_report)>& body) {
  const auto output = take<OutputParams>(invocation);
  require_page_places(invocation);
  const Json from = read_report(source);
  Warnings warnings;
  warn_of_source(source, from, warnings);
  const ExperimentResult result = body(from);
  Json report;
  report["schema"] = "kvdiv/report/1";
  report["complete"] = result.complete;
  report["created_utc"] = utc_stamp();
  report["argv"] = invocation.argv;
  report["tool"] = describe_tool(libtorch_version());
  for (const char* key : {"environment", "numerics", "model", "data"})
    report[key] = from.contains(key) ? from[key] : Json(nullptr);
  report["experiment"] = {{"name", name}, {"params", {{"source", source.string()}, {"source_argv", from["argv"]}}}};
  report["controls"] = result.controls;
  report["conditions"] = result.conditions;
  report["verdict"] = result.verdict;
  report["warnings"] = to_json_value(warnings.all());
  ResultDirectory directory(output.output.value_or(default_output(name, from)),
                            output.overwrite ? Existing::replace : Existing::refuse);
  directory.write_report(report);
  write_pages(invocation, {directory.path()});
  if (!output.quiet) write_stderr(fmt::format("{}: {} → {}\n", name, source.string(), directory.path().string()));
  fmt::print("{}", render_report(report, output.json));
  return 0;
}

}  // namespace kvdiv
