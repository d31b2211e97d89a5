#include "kvdiv/report/render.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "kvdiv/base/text.h"
#include "kvdiv/report/table.h"

namespace kvdiv {
namespace {

constexpr const char* kNone = "–";
constexpr double kBitsPerNat = 1.4426950408889634;

/// The member of nested objects, or null.
const Json& at_path(const Json& j, std::initializer_list<const char*> keys) {
  static const Json null;
  const Json* here = &j;
  for (const char* key : keys) {
    if (!here->is_object() || !here->contains(key)) return null;
    here = &(*here)[key];
  }
  return *here;
}

std::string count(const Json& value) {
  return value.is_number_integer() ? with_commas(value.get<std::uint64_t>()) : kNone;
}

std::string percent(const Json& value) {
  if (!value.is_number()) return kNone;
  const double p = 100.0 * value.get<double>();
  return p == 0.0 || p == 100.0 ? fmt::format("{:.0f} %", p) : fmt::format("{:.3g} %", p);
}

std::string in_bits(const Json& nats) {
  return nats.is_number() ? short_number(nats.get<double>() * kBitsPerNat) : kNone;
}

std::string interval(const Json& stat) {
  const Json &low = at_path(stat, {"ci_low"}), &high = at_path(stat, {"ci_high"});
  return low.is_number() && high.is_number() ? fmt::format("[{}, {}]", short_number(low), short_number(high)) : kNone;
}

std::string header(const Json& r) {
  const Json& model = at_path(r, {"model"});
  const auto text = [](const Json& v) { return v.is_string() ? v.get<std::string>() : std::string(kNone); };
  const Json& numerics = at_path(r, {"numerics"});
  std::string out = fmt::format("kvdiv {}  {}  {}, {} parameters\n", text(at_path(r, {"experiment", "name"})),
                                text(at_path(model, {"name"})), text(at_path(model, {"architecture"})),
                                count(at_path(model, {"n_params"})));
  out += fmt::format("  attention {}, cache in the compute dtype, device {}, threads {}\n",
                     text(at_path(numerics, {"attention"})), text(at_path(r, {"environment", "device"})),
                     count(at_path(r, {"environment", "n_threads"})));
  out += fmt::format("  prompts {}, {} of them\n", text(at_path(r, {"data", "source"})),
                     count(at_path(r, {"data", "n_prompts"})));
  out += "  KL(on‖off) = Σ p_on ln(p_on/p_off), FP64, temperature 1; same-prefix steps differ by arithmetic only\n";
  return out;
}

/// One row of the metrics table over the three groups of steps.
template <class Cell>
void metric_row(TextTable& table, const Json& condition, const std::string& label, const Cell& cell) {
  std::vector<std::string> cells{label};
  for (const char* group : {"same_prefix", "free_running", "after_flip"}) {
    const Json& g = at_path(condition, {group});
    cells.push_back(g.is_object() ? cell(g) : kNone);
  }
  table.row(std::move(cells));
}

std::string metrics_table(const Json& c) {
  TextTable table({"", "same prefix", "free-running", "after the flip"});
  const auto stat = [](const char* metric, const char* field) {
    return [=](const Json& g) { return short_number(at_path(g, {metric, field})); };
  };
  metric_row(table, c, "steps", [](const Json& g) { return count(at_path(g, {"n_steps"})); });
  metric_row(table, c, "KL(on‖off) mean, nats", stat("kl_on_off_nats", "mean"));
  metric_row(table, c, "  95 % interval, by prompt",
             [](const Json& g) { return interval(at_path(g, {"kl_on_off_nats"})); });
  metric_row(table, c, "  99th percentile; max",
             [&](const Json& g) { return stat("kl_on_off_nats", "p99")(g) + "; " + stat("kl_on_off_nats", "max")(g); });
  metric_row(table, c, "  mean, bits", [](const Json& g) { return in_bits(at_path(g, {"kl_on_off_nats", "mean"})); });
  metric_row(table, c, "JS mean, bits (at most 1)", [](const Json& g) {
    return in_bits(at_path(g, {"js_nats", "mean"}));
  });
  metric_row(table, c, "max |Δlogit|", stat("max_abs_dlogit", "max"));
  metric_row(table, c, "bit-equal steps", [](const Json& g) { return percent(at_path(g, {"bit_equal_rate"})); });
  metric_row(table, c, "different token chosen", [](const Json& g) {
    const Json& ties = at_path(g, {"tie_flips"});
    const bool tied = ties.is_number_integer() && ties.get<std::int64_t>() > 0;
    return count(at_path(g, {"flips"})) + (tied ? fmt::format(" + {} tied", count(ties)) : "");
  });
  return table.str(4);
}

std::string accuracy_line(const Json& c) {
  const Json& a = at_path(c, {"accuracy"});
  if (!a.is_object() || !at_path(a, {"on"}).is_number()) return {};
  std::string out = fmt::format("    GSM8K accuracy: ON {}, OFF {}, {} answers", percent(at_path(a, {"on"})),
                                percent(at_path(a, {"off"})), count(at_path(a, {"n"})));
  const Json& p = at_path(c, {"mcnemar", "exact", "p_adjusted"});
  if (p.is_number()) out += fmt::format("; McNemar exact, adjusted p {}", short_number(p));
  return out + "\n";
}

std::string condition_block(const Json& c) {
  const auto text = [&](const char* key) { return c.value(key, std::string(kNone)); };
  std::string out = fmt::format("\n  {} / {} / {}   {} pairs: {} prompts", text("dtype"), text("backend"),
                                text("strategy"), count(at_path(c, {"n_pairs"})), count(at_path(c, {"n_prompts"})));
  const Json& seeds = at_path(c, {"n_seeds"});
  out += seeds.is_number() && seeds.get<int>() > 1 ? fmt::format(" × {} seeds\n", count(seeds)) : "\n";
  out += metrics_table(c);
  out += fmt::format("    pairs whose tokens differ: {}; first flip, median step: {}\n",
                     percent(at_path(c, {"divergence_rate"})), short_number(at_path(c, {"flip_index", "median"})));
  out += accuracy_line(c);
  const Json& timing = at_path(c, {"timing"});
  out += fmt::format("    speed: ON {} tokens/s, OFF {} tokens/s\n", short_number(at_path(timing, {"on_tokens_per_s"})),
                     short_number(at_path(timing, {"off_tokens_per_s"})));
  return out;
}

std::string controls_line(const Json& controls) {
  std::string failed;
  int n = 0;
  for (const auto& [name, value] : controls.items()) {
    const bool holds =
        value.is_boolean() ? value.get<bool>() : at_path(value, {"expected"}) == at_path(value, {"computed"});
    ++n;
    if (!holds) failed += (failed.empty() ? "" : ", ") + name;
  }
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
  for (const Json& condition : at_path(r, {"conditions"})) out += condition_block(condition);
  out += controls_line(at_path(r, {"controls"}));
  if (const Json& sentence = at_path(r, {"verdict", "sentence"}); sentence.is_string())
    out += fmt::format("  verdict: {}. {}\n", at_path(r, {"verdict", "kind"}).get<std::string>(),
                       sentence.get<std::string>());
  if (!r.value("complete", false)) out += "  INCOMPLETE: the run was interrupted\n";
  for (const Json& w : at_path(r, {"warnings"}))
    out += fmt::format("  warning ({}): {}\n    → {}\n", w.value("code", ""), w.value("message", ""),
                       w.value("remedy", ""));
  return out;
}

}  // namespace kvdiv
