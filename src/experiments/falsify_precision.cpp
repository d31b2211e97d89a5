#include "falsify_precision.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kvdiv/base/fields.h"
#include "kvdiv/decode/stepper.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv {
namespace {

using Sums = std::map<std::string, std::pair<double, double>>;  // prompt → (Σ, n)

/// Of all prompts.
BootstrapInterval mean_of(const Sums& sums) {
  std::vector<std::pair<double, double>> each;
  for (const auto& [prompt, sum] : sums) each.push_back(sum);
  return ratio_of_sums(each);
}

/// Mean of `a` over mean of `b`, both over the same drawn prompts.
BootstrapInterval ratio_of_means(const Sums& a, const Sums& b) {
  std::vector<std::array<double, 4>> each;
  for (const auto& [prompt, sum] : a)
    if (const auto it = b.find(prompt); it != b.end())
      each.push_back({sum.first, sum.second, it->second.first, it->second.second});
  return bootstrap_interval(
      std::ssize(each),
      [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
        std::array<double, 4> t{};
        for (const std::uint32_t i : drawn)
          for (std::size_t k = 0; k < 4; ++k) t[k] += each[i][k];
        if (!(t[1] > 0.0) || !(t[3] > 0.0) || !(t[2] > 0.0)) return std::nullopt;
        return (t[0] / t[1]) / (t[2] / t[3]);
      },
      BootstrapMethod::percentile);
}

struct ChunkedPrompt {
  double kl = 0.0, on_off_kl = 0.0, n = 0.0, max_abs_dlogit = 0.0;
};

/// ON with chunks along the tokens that ON chose with its prompt whole.
ChunkedPrompt compare_chunked(const Decoder& decoder, const Trajectory& t, std::int64_t chunk) {
  CachedStepper stepper(decoder, t.n_prompt() + t.n_steps(), chunk);
  ChunkedPrompt out;
  for (std::int64_t s = 0; s < t.n_steps(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    const auto chunked = host_logits(s == 0 ? stepper.prefill(t.prompt) : stepper.step(t.newest(s).front()));
    const StepMetrics m = compare_logits(t.logits_on[i], chunked);
    out.kl += m.kl_on_off_nats;
    out.max_abs_dlogit = std::max(out.max_abs_dlogit, m.max_abs_dlogit);
    out.on_off_kl += compare_logits(t.logits_on[i], t.logits_off[i]).kl_on_off_nats;
    out.n += 1.0;
  }
  return out;
}

}  // namespace

PrecisionResult precision_of(const PairTable& table, std::int32_t condition,
                             const std::vector<const PromptItem*>& prompts) {
  std::set<std::string> wanted;
  for (const PromptItem* p : prompts) wanted.insert(p->id);
  PrecisionResult r;
  r.condition = table.conditions()[static_cast<std::size_t>(condition)];
  for (const PairRow* row : table.of_condition(condition)) {
    if (!wanted.contains(row->prompt_id)) continue;
    ++r.n_pairs;
    r.n_diverged += row->diverged;
  }
  for (const StepRow& step : table.steps()) {
    const PairRow& row = table.rows()[static_cast<std::size_t>(step.pair)];
    if (row.condition != condition || !wanted.contains(row.prompt_id)) continue;
    const bool tied = step.tie && r.condition.ends_with("/greedy");
    ++r.n_steps;
    r.flips += step.flip && !tied;
    r.tie_flips += step.flip && tied;
    auto& [kl, n] = r.kl_by_prompt[row.prompt_id];
    kl += step.kl, n += 1.0;
    auto& [flips, m] = r.flips_by_prompt[row.prompt_id];
    flips += step.flip && !tied, m += 1.0;
  }
  r.n_prompts = std::ssize(r.kl_by_prompt);
  return r;
}

Json precision_row(const PrecisionResult& r, const PrecisionResult& base) {
  Json row = {{"condition", r.condition}, {"n_pairs", r.n_pairs}, {"n_prompts", r.n_prompts}, {"n_steps", r.n_steps}};
  row["flips"] = r.flips;
  row["tie_flips"] = r.tie_flips;
  row["n_diverged"] = r.n_diverged;
  row["flip_rate"] = to_json_value(mean_of(r.flips_by_prompt));
  row["kl_on_off_nats"] = to_json_value(mean_of(r.kl_by_prompt));
  row["ratio_to_base"] = to_json_value(ratio_of_means(base.kl_by_prompt, r.kl_by_prompt));
  return row;
}

double kl_in_fp32(std::span<const double> on, std::span<const double> off) {
  const auto log_softmax = [](std::span<const double> logits) {
    std::vector<float> out(logits.begin(), logits.end());
    const float largest = *std::max_element(out.begin(), out.end());
    float sum = 0.0F;
    for (const float x : out) sum += std::exp(x - largest);
    for (float& x : out) x = (x - largest) - std::log(sum);
    return out;
  };
  const auto p = log_softmax(on), q = log_softmax(off);
  float kl = 0.0F;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return static_cast<double>(kl);
}

Json own_order_control(const Decoder& decoder, const DecodeParams& params,
                       const std::vector<const PromptItem*>& prompts) {
  const Arms arms(decoder);
  SelectionParams selection;
  selection.max_steps = std::min<std::int64_t>(params.max_new_tokens, 32);
  selection.ignore_eos = params.ignore_eos;
  const std::vector<std::int64_t> chunks{1, 16, 64};
  std::map<std::int64_t, std::pair<Sums, Sums>> sums;
  std::map<std::int64_t, double> max_abs_dlogit;
  std::int64_t n_steps = 0;
  for (const PromptItem* prompt : prompts) {
    const Trajectory t = trajectory_of(arms, selection, *prompt);
    n_steps += t.n_steps();
    for (const std::int64_t chunk : chunks) {
      const ChunkedPrompt c = compare_chunked(decoder, t, chunk);
      sums[chunk].first[prompt->id] = {c.kl, c.n};
      sums[chunk].second[prompt->id] = {c.on_off_kl, c.n};
      max_abs_dlogit[chunk] = std::max(max_abs_dlogit[chunk], c.max_abs_dlogit);
    }
  }
  Json rows = Json::array();
  for (const std::int64_t chunk : chunks) {
    const auto& [own, arms_apart] = sums[chunk];
    rows.push_back({{"chunk", chunk},
                    {"kl_nats", to_json_value(mean_of(own))},
                    {"max_abs_dlogit", max_abs_dlogit[chunk]},
                    {"on_off_kl_nats", to_json_value(mean_of(arms_apart))},
                    {"ratio", to_json_value(ratio_of_means(arms_apart, own))}});
  }
  return {{"n_prompts", prompts.size()}, {"n_steps", n_steps}, {"rows", std::move(rows)}};
}

}  // namespace kvdiv
