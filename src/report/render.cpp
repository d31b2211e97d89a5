#include "kvdiv/report/render.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "kvdiv/base/text.h"
#include "kvdiv/report/table.h"
#include "render_paper.h"
#include "render_run.h"
#include "render_specs.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

constexpr const char* kNone = "–";

std::string header(const Json& r) {
  const Json& model = at_path(r, "model");
  const auto text = [](const Json& v) { return v.is_string() ? v.get<std::string>() : std::string(kNone); };
  const Json& numerics = at_path(r, "numerics");
  std::string out = fmt::format("kvdiv {}  {}  {}, {} parameters\n", text(at_path(r, "experiment.name")),
                                text(at_path(model, "name")), text(at_path(model, "architecture")),
                                count_text(at_path(model, "n_params")));
  out += fmt::format("  attention {}, cache in the compute dtype, device {}, threads {}\n",
                     text(at_path(numerics, "attention")), text(at_path(r, "environment.device")),
                     count_text(at_path(r, "environment.n_threads")));
  out += fmt::format("  prompts {}, {} of them\n", text(at_path(r, "data.source")),
                     count_text(at_path(r, "data.n_prompts")));
  out += "  KL(on‖off) = Σ p_on ln(p_on/p_off), FP64, temperature 1; same-prefix steps differ by arithmetic only\n";
  return out;
}

/// Any experiment but `run`: its tables, one under the other.
std::string condition_block(const std::string& experiment, const Json& c) {
  const auto text = [&](const char* key) { return c.value(key, std::string(kNone)); };
  std::string out = "\n";
  const std::string prompts =
      c.contains("n_prompts") ? fmt::format("   {} prompts", count_text(c["n_prompts"])) : std::string();
  if (c.contains("dtype"))
    out += fmt::format("  {} / {}{}\n", text("dtype"), text("backend"), prompts);
  else if (c.contains("condition"))
    out +=
        fmt::format("  {}   {} pairs of {} prompts, {} flipped\n", text("condition"), count_text(at_path(c, "n_pairs")),
                    count_text(at_path(c, "n_prompts")), count_text(at_path(c, "n_flipped")));
  for (const TableSpec& spec : condition_tables(experiment)) out += render_table(c, spec, 4);
  return out;
}

std::string controls_line(const Json& controls) {
  std::string failed;
  int n = 0;
  for (const auto& [name, value] : controls.items()) {
    if (!value.is_boolean() && !value.contains("expected")) continue;  // a number to read, not a condition
    const bool holds =
        value.is_boolean() ? value.get<bool>() : at_path(value, "expected") == at_path(value, "computed");
    ++n;
    if (!holds) failed += (failed.empty() ? "" : ", ") + name;
  }
  if (n == 0) return "\n";
  return failed.empty() ? fmt::format("\n  controls: all {} hold\n", n)
                        : fmt::format("\n  controls FAILED: {}\n", failed);
}

}  // namespace

std::string short_number(const Json& value) {
  if (!value.is_number()) return kNone;
  const double v = value.get<double>();
  if (v == 0.0) return "0";
  const double magnitude = std::abs(v);
  if (magnitude >= 0.01 && magnitude < 10000.0) return fmt::format("{:.3g}", v);
  return fmt::format("{:.1e}", v);
}

std::string render_text(const Json& r) {
  std::string out = header(r);
  if (at_path(r, "questions").is_array()) out += paper_summary(r);
  const Json& name = at_path(r, "experiment.name");
  const std::string experiment = name.is_string() ? name.get<std::string>() : "";
  for (const Json& condition : at_path(r, "conditions"))
    out += experiment == "run" || experiment == "paper" ? run_condition(condition)
                                                        : condition_block(experiment, condition);
  if (experiment == "paper") out += paper_details(r);
  if (experiment == "selftest")
    for (const TableSpec& spec : selftest_tables())
      if (const std::string table = render_table(r, spec, 2); !table.empty()) out += "\n" + table;
  out += controls_line(at_path(r, "controls"));
  if (const Json& sentence = at_path(r, "verdict.sentence"); sentence.is_string())
    out +=
        fmt::format("  verdict: {}. {}\n", at_path(r, "verdict.kind").get<std::string>(), sentence.get<std::string>());
  out += bug_details(at_path(r, "verdict"));
  if (!r.value("complete", false)) out += "  INCOMPLETE: the run was interrupted\n";
  for (const Json& w : at_path(r, "warnings"))
    out += fmt::format("  warning ({}): {}\n    → {}\n", w.value("code", ""), w.value("message", ""),
                       w.value("remedy", ""));
  return out;
}

std::string render_report(const Json& report, bool as_json) {
  return as_json ? report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : render_text(report);
}

}  // namespace kvdiv
