#include "kvdiv/report/html.h"

#include <string>
#include <utility>

#include "html_data.h"
#include "html_page.h"
#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/hub.h"
#include "kvdiv/report/result_directory.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

/// The paper's numbers that a scale marks; null if the file is not there.
Json published_numbers(const fs::path& configs) {
  std::error_code ignored;
  const fs::path file = configs / "paper_published.json";
  if (!fs::is_regular_file(file, ignored)) return nullptr;
  const Json published = read_json_file(file);
  return {{"source", at_path(published, "source")}, {"signature", at_path(published, "signature")}};
}

std::string title_of(const Json& results) {
  std::string out = "kvdiv";
  for (const Json& result : results) {
    const Json &name = at_path(result, "report.experiment.name"), &model = at_path(result, "report.model.name");
    if (out != "kvdiv") out += " and";
    if (name.is_string()) out += " " + name.get<std::string>();
    if (model.is_string()) out += " " + model.get<std::string>();
  }
  return out;
}

}  // namespace

bool write_html(const std::vector<fs::path>& results, const fs::path& file) {
  if (results.empty() || results.size() > 2)
    fail_usage("--html takes one result, or two to put side by side; {} were given", results.size());
  const DataPaths paths = find_data_paths();
  const PageAssets assets = read_page_assets(paths.data);
  Json data = {{"format", "kvdiv/html/1"},
               {"published", published_numbers(paths.configs)},
               {"results", Json::array()},
               {"differences", nullptr}};
  std::vector<Json> reports;
  for (const fs::path& result : results) {
    reports.push_back(read_report(result));
    data["results"].push_back(page_result(result, reports.back()));
  }
  if (reports.size() == 2) data["differences"] = page_differences(reports[0], reports[1]);
  write_text_file_atomically(file, build_page(data, title_of(data["results"]), assets));
  return !assets.chart_js.empty();
}

}  // namespace kvdiv
