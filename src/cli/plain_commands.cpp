#include "plain_commands.h"

#include <fmt/format.h>

#include "kvdiv/base/text.h"
#include "kvdiv/base/warnings.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/hub.h"
#include "kvdiv/io/model_catalog.h"
#include "kvdiv/model/config.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/switches.h"
#include "kvdiv/numerics/torch_info.h"
#include "kvdiv/report/environment.h"
#include "kvdiv/report/render.h"
#include "kvdiv/report/result_directory.h"
#include "kvdiv/report/table.h"
#include "pages.h"
#include "params.h"

namespace kvdiv {

int models_command(const Invocation& invocation) {
  const auto models = list_models(find_data_paths());
  Json out = Json::array();
  TextTable table({"model", "architecture", "parameters", "on disk", "fits in float16", "where"});
  table.left(1).left(5);
  for (const ListedModel& m : models) {
    Json row = {{"name", m.name},
                {"kind", m.kind},
                {"repo", m.repo},
                {"architecture", m.architecture},
                {"downloaded", m.downloaded()},
                {"path", m.path ? Json(m.path->string()) : Json(nullptr)},
                {"bytes_on_disk", m.bytes},
                {"n_params", nullptr},
                {"fits", nullptr},
                {"problem", m.problem.empty() ? Json(nullptr) : Json(m.problem)}};
    if (m.downloaded() && m.problem.empty()) {
      Warnings ignored;
      const Checkpoint checkpoint = Checkpoint::open(*m.path);
      const ModelConfig config =
          parse_model_config(checkpoint.config(), checkpoint.generation_config(), "config.json", ignored);
      row["n_params"] = config.n_params();
      row["fits"] = memory_need(config, DType::float16, 1024).total() <= available_memory_bytes();
    }
    const auto text = [&](const char* key) {
      return row[key].is_null() ? std::string("–") : row[key].get<std::string>();
    };
    table.row({m.name, text("architecture"),
               row["n_params"].is_null() ? "–" : with_commas(row["n_params"].get<std::uint64_t>()),
               m.downloaded() ? human_bytes(static_cast<double>(m.bytes)) : "–",
               row["fits"].is_null()     ? "–"
               : row["fits"].get<bool>() ? "yes"
                                         : "no",
               !m.problem.empty() ? m.problem
               : m.downloaded()   ? text("path")
                                  : "not downloaded: " + m.repo});
    out.push_back(std::move(row));
  }
  fmt::print("{}", take<JsonParams>(invocation).json ? out.dump(2) + "\n" : table.str(0));
  return 0;
}

int env_command(const Invocation& invocation) {
  const NumericGuard guard(NumericSwitches{});
  Json out;
  out["tool"] = describe_tool(libtorch_version());
  std::string why;
  const DeviceModule* const gpu = try_load_cuda(why);
  out["environment"] = describe_environment(1, gpu != nullptr ? gpu->describe() : Json());
  out["numerics"] = read_numerics();
  if (gpu != nullptr) out["numerics"].update(gpu->read_numerics());
  out["cuda"] = {{"available", gpu != nullptr}, {"reason", gpu != nullptr ? Json(nullptr) : Json(why)}};
  if (take<JsonParams>(invocation).json) {
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  TextTable table({"", ""});
  table.left(1);
  for (const auto& [section, values] : out.items())
    for (const auto& [key, value] : values.items())
      table.row({section + "." + key, value.is_string() ? value.get<std::string>() : value.dump()});
  fmt::print("{}", table.str(0));
  return 0;
}

int report_command(const Invocation& invocation) {
  const auto page = take<PageParams>(invocation);
  const auto& directories = invocation.positionals;
  if (directories.empty() || directories.size() > 2 || (directories.size() == 2 && (!page.html || page.csv)))
    fail_usage("kvdiv report takes one result directory, or two with --html alone; see kvdiv report --help");
  require_page_places(invocation);
  write_pages(invocation, {directories.begin(), directories.end()});
  if (page.html || page.csv) {
    for (const auto& file : {page.html, page.csv})
      if (file) fmt::print("{}\n", *file);
    return 0;
  }
  const Json report = read_report(directories.front());
  fmt::print("{}", render_report(report, take<JsonParams>(invocation).json));
  return 0;
}

}  // namespace kvdiv
