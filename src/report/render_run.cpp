#include "render_run.h"

#include <fmt/format.h>

#include <cstdint>

#include "kvdiv/report/render.h"
#include "kvdiv/report/table.h"
#include "render_tables.h"

namespace kvdiv {
namespace {

constexpr const char* kNone = "–";
constexpr double kBitsPerNat = 1.4426950408889634;

std::string in_bits(const Json& nats) {
  return nats.is_number() ? short_number(nats.get<double>() * kBitsPerNat) : kNone;
}

std::string interval(const Json& stat) { return interval_text(at_path(stat, "ci_low"), at_path(stat, "ci_high")); }

/// One row of the metrics table over the three groups of steps.
template <class Cell>
void metric_row(TextTable& table, const Json& condition, const std::string& label, const Cell& cell) {
  std::vector<std::string> cells{label};
  for (const char* group : {"same_prefix", "free_running", "after_flip"}) {
    const Json& g = at_path(condition, group);
    cells.push_back(g.is_object() ? cell(g) : kNone);
  }
  table.row(std::move(cells));
}

std::string metrics_table(const Json& c) {
  TextTable table({"", "same prefix", "free-running", "after the flip"});
  const auto stat = [](const char* metric, const char* field) {
    return [=](const Json& g) { return short_number(at_path(g, metric + std::string(".") + field)); };
  };
  metric_row(table, c, "steps", [](const Json& g) { return count_text(at_path(g, "n_steps")); });
  metric_row(table, c, "KL(on‖off) mean, nats", stat("kl_on_off_nats", "mean"));
  metric_row(table, c, "  95 % interval, by prompt",
             [](const Json& g) { return interval(at_path(g, "kl_on_off_nats")); });
  metric_row(table, c, "  99th percentile; max",
             [&](const Json& g) { return stat("kl_on_off_nats", "p99")(g) + "; " + stat("kl_on_off_nats", "max")(g); });
  metric_row(table, c, "  mean, bits", [](const Json& g) { return in_bits(at_path(g, "kl_on_off_nats.mean")); });
  metric_row(table, c, "JS mean, bits (at most 1)", [](const Json& g) { return in_bits(at_path(g, "js_nats.mean")); });
  metric_row(table, c, "max |Δlogit|", stat("max_abs_dlogit", "max"));
  metric_row(table, c, "bit-equal steps", [](const Json& g) { return percent_text(at_path(g, "bit_equal_rate")); });
  metric_row(table, c, "different token chosen", [](const Json& g) {
    const Json& ties = at_path(g, "tie_flips");
    const bool tied = ties.is_number_integer() && ties.get<std::int64_t>() > 0;
    return count_text(at_path(g, "flips")) + (tied ? fmt::format(" + {} tied", count_text(ties)) : "");
  });
  return table.str(4);
}

std::string accuracy_line(const Json& c) {
  const Json& a = at_path(c, "accuracy");
  if (!a.is_object() || !at_path(a, "on").is_number()) return {};
  std::string out = fmt::format("    GSM8K accuracy: ON {}, OFF {}, {} answers", percent_text(at_path(a, "on")),
                                percent_text(at_path(a, "off")), count_text(at_path(a, "n")));
  const Json& p = at_path(c, "mcnemar.exact.p_adjusted");
  if (p.is_number()) out += fmt::format("; McNemar exact, adjusted p {}", short_number(p));
  const Json& detectable = at_path(c, "mcnemar.exact.min_detectable_effect");
  if (p.is_number() && p.get<double>() >= 0.05 && detectable.is_number())
    out += fmt::format(" (a difference of {} would have been seen)", percent_text(detectable));
  const Json& equal = at_path(c, "accuracy_equivalence.p");
  if (equal.is_number()) out += fmt::format("; the same within 1 %: p {}", short_number(equal));
  return out + "\n";
}

}  // namespace

std::string run_condition(const Json& c) {
  const auto text = [&](const char* key) { return c.value(key, std::string(kNone)); };
  std::string out =
      fmt::format("\n  {} / {} / {}   {} pairs: {} prompts", text("dtype"), text("backend"), text("strategy"),
                  count_text(at_path(c, "n_pairs")), count_text(at_path(c, "n_prompts")));
  const Json& seeds = at_path(c, "n_seeds");
  out += seeds.is_number() && seeds.get<int>() > 1 ? fmt::format(" × {} seeds\n", count_text(seeds)) : "\n";
  out += metrics_table(c);
  out += fmt::format("    pairs whose tokens differ: {}; first flip, median step: {}\n",
                     percent_text(at_path(c, "divergence_rate")), short_number(at_path(c, "flip_index.median")));
  out += accuracy_line(c);
  const Json& timing = at_path(c, "timing");
  out += fmt::format("    speed: ON {} tokens/s, OFF {} tokens/s\n", short_number(at_path(timing, "on_tokens_per_s")),
                     short_number(at_path(timing, "off_tokens_per_s")));
  return out;
}

std::string bug_details(const Json& verdict) {
  const Json& where = at_path(verdict, "where");
  if (!where.is_object()) return {};
  std::string out = fmt::format("    where: step {}, layer {} (0: embeddings), {}", where["step"].dump(),
                                where["layer"].dump(), where["operation"].get<std::string>());
  if (const std::string arm = where.value("arm", ""); !arm.empty()) out += arm == "on" ? ", arm ON" : ", arm OFF";
  out += "\n";
  const Json& nearest = at_path(verdict, "nearest");
  if (!nearest.is_object()) return out;
  out += fmt::format("    nearest: {}", nearest["symptom"].get<std::string>());
  std::string others;
  for (const Json& n : nearest["compared_to"])
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", n["symptom"].get<std::string>(),
                          short_number(n["distance_nats"]));
  if (!others.empty()) out += fmt::format("   (KL to what each fault would give, nats: {})", others);
  return out + "\n";
}

}  // namespace kvdiv
