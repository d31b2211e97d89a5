#include "render_paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kvdiv/report/render.h"
#include "render_specs.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

/// The tables of an experiment that the paper's report shows; the rest is in report.json.
const std::array<std::pair<const char*, std::vector<const char*>>, 4> kShown{
    {{"drift", {"by_layer"}},
     {"falsify", {"rerun", "own_order.rows"}},
     {"boundary", {"margins", "kl_over_steps"}},
     {"patch", {"parts", "decay", "published_pooled"}}}};

/// OFF's values into ON, everywhere and what was stored: the other direction and the position sets are in report.json.
bool is_main_part(const Json& row) {
  return row["step"] != 0 && row["direction"] == "off_into_on" && row["positions"] != "prompt" &&
         row["positions"] != "generated";
}

std::string questions(const Json& report) {
  std::string out = "\n  the paper's five questions\n";
  for (const Json& q : at_path(report, "questions"))
    out += fmt::format("    {}  {}\n       {} {}   {}\n       → {}: {}\n", q["experiment"].dump(),
                       q["question"].get<std::string>(), short_number(q["number"]), interval_text(q["low"], q["high"]),
                       q["unit"].get<std::string>(), q["verdict"].get<std::string>(), q["sentence"].get<std::string>());
  return out;
}

std::string comparison(const Json& report) {
  std::string out = "\n  published and measured\n";
  for (const Json& row : at_path(report, "published"))
    out += fmt::format(
        "    {}  {}\n       published  {}\n       measured   {}\n       why        {}\n", row["experiment"].dump(),
        row["quantity"].get<std::string>(), row["published"].get<std::string>(),
        row["measured"].is_string() ? row["measured"].get<std::string>() : "–", row["why"].get<std::string>());
  return out;
}

/// Distances of numbers, and no more: where they come from is not said.
std::string signatures(const Json& report) {
  const Json& s = at_path(report, "signatures");
  if (!s.is_object()) return {};
  std::string out = "\n  published numbers and the signatures of known faults\n";
  for (const TableSpec& spec : signature_tables()) out += render_table(s, spec, 4);
  return out + "    → " + s["sentence"].get<std::string>() + "\n";
}

}  // namespace

std::string paper_summary(const Json& report) { return questions(report) + comparison(report) + signatures(report); }

std::string paper_details(const Json& report) {
  std::string out;
  for (const auto& [name, shown] : kShown) {
    const Json& part = at_path(report, std::string("experiments.") + name);
    if (!part.is_object()) continue;
    out += fmt::format("\n  {}\n", name);
    for (const Json& condition : part["conditions"])
      for (TableSpec spec : condition_tables(name)) {
        if (std::find(shown.begin(), shown.end(), spec.rows) == shown.end()) continue;
        if (spec.rows == "parts") spec.keep = is_main_part;
        out += render_table(condition, spec, 4);
      }
  }
  return out;
}

}  // namespace kvdiv
