#include "boundary_margins.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kvdiv/base/fields.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

struct Steps {
  std::vector<const StepRow*> rows;
  std::vector<std::int32_t> prompts;
};

Steps steps_of(const PairTable& table, std::int32_t condition) {
  Steps out;
  for (const StepRow& s : table.steps()) {
    const PairRow& pair = table.rows()[static_cast<std::size_t>(s.pair)];
    if (pair.condition != condition || !std::isfinite(s.margin_on) || !std::isfinite(s.max_abs_dlogit)) continue;
    out.rows.push_back(&s);
    out.prompts.push_back(pair.prompt);
  }
  return out;
}

/// No logit moves by more than max|Δlogit|, so the gap between two of them moves by at most twice that. A tie has no margin:
/// what it does is counted apart.
bool can_flip(const StepRow& s) { return !s.tie && s.margin_on <= 2.0 * s.max_abs_dlogit; }
/// The largest logit is another one. Of greedy decoding that is the flip; under sampling the token drawn may be the same.
bool flips(const StepRow& s) { return !s.top1_equal && !s.tie; }

/// RMS of the margin's own movement, where both arms have the same top token.
double sigma_of(const Steps& steps) {
  double sum = 0.0;
  std::int64_t n = 0;
  for (const StepRow* s : steps.rows) {
    if (!s->top1_equal || !std::isfinite(s->margin_off)) continue;
    sum += (s->margin_off - s->margin_on) * (s->margin_off - s->margin_on);
    ++n;
  }
  return n > 0 ? std::sqrt(sum / static_cast<double>(n)) : 0.0;
}

/// P(N(0, σ²) < −margin).
double expected_rate(double margin, double sigma) {
  if (sigma == 0.0) return 0.0;
  return 0.5 * std::erfc(margin / (sigma * std::sqrt(2.0)));
}

/// Share of the steps in `of` that are in `among`, with its interval by prompt.
template <class In, class Of>
BootstrapInterval share(const Steps& steps, const In& in, const Of& of) {
  std::map<std::int32_t, std::pair<double, double>> by_prompt;
  for (std::size_t i = 0; i < steps.rows.size(); ++i) {
    auto& [hits, n] = by_prompt[steps.prompts[i]];
    if (!of(*steps.rows[i])) continue;
    n += 1.0;
    hits += in(*steps.rows[i]) ? 1.0 : 0.0;
  }
  std::vector<std::pair<double, double>> counts;
  for (const auto& [prompt, count] : by_prompt) counts.push_back(count);
  return ratio_of_sums(counts);
}

bool is_greedy(const PairTable& table, std::int32_t condition) {
  return table.conditions()[static_cast<std::size_t>(condition)].ends_with("/greedy");
}

}  // namespace

Json margins_of(const PairTable& table, std::int32_t condition) {
  const Steps steps = steps_of(table, condition);
  const double sigma = sigma_of(steps);
  std::int64_t n_flips = 0, n_ties = 0, n_predicted = 0;
  double expected = 0.0;
  for (const StepRow* s : steps.rows) {
    n_flips += flips(*s);
    n_ties += !s->top1_equal && s->tie;
    n_predicted += can_flip(*s);
    if (!s->tie) expected += expected_rate(s->margin_on, sigma);
  }
  Json j;
  j["of"] = is_greedy(table, condition) ? "greedy flips" : "changes of the largest logit";
  j["n_steps"] = steps.rows.size();
  j["flips"] = n_flips;
  j["tie_flips"] = n_ties;
  j["tied_steps"] = std::count_if(steps.rows.begin(), steps.rows.end(), [](const StepRow* r) { return r->tie; });
  j["predicted"] = n_predicted;
  j["share_of_steps_that_can_flip"] = to_json_value(share(steps, can_flip, [](const StepRow&) { return true; }));
  j["share_explained"] = to_json_value(share(steps, can_flip, flips));
  j["share_of_predicted_that_flipped"] = to_json_value(share(steps, flips, can_flip));
  j["sigma"] = sigma;
  j["expected_flips"] = expected;
  j["reason"] = n_flips == 0 ? Json("no flips in these steps") : Json(nullptr);
  return j;
}

Json calibration_of(const PairTable& table, std::int32_t condition) {
  Json rows = Json::array();
  const Steps steps = steps_of(table, condition);
  const double sigma = sigma_of(steps);
  // From a thousandth of a logit: below it FP16 logits of size 1 to 32 are equal or neighbours.
  double from = 0.0;
  for (double to = std::ldexp(1.0, -10); from < 64.0; from = to, to *= 2.0) {
    const bool is_last = to > 64.0;
    const auto in_bin = [&](const StepRow& s) {
      return !s.tie && s.margin_on >= from && (is_last || s.margin_on < to);
    };
    std::int64_t n = 0, n_flips = 0;
    double expected = 0.0;
    for (const StepRow* s : steps.rows) {
      if (!in_bin(*s)) continue;
      ++n;
      n_flips += flips(*s);
      expected += expected_rate(s->margin_on, sigma);
    }
    if (n == 0) continue;
    rows.push_back({{"margin_from", from},
                    {"margin_to", is_last ? Json(nullptr) : Json(to)},
                    {"n_steps", n},
                    {"flips", n_flips},
                    {"flip_rate", to_json_value(share(steps, flips, in_bin))},
                    {"expected_rate", expected / static_cast<double>(n)}});
  }
  return rows;
}

Json kl_over_steps(const PairTable& table, std::int32_t condition) {
  Json rows = Json::array();
  for (std::int32_t from = 1;; from *= 2) {
    std::vector<double> kl;
    std::vector<std::int32_t> prompts;
    std::int32_t last = 0;
    for (const StepRow& s : table.steps()) {
      const PairRow& pair = table.rows()[static_cast<std::size_t>(s.pair)];
      if (pair.condition != condition || s.step < from || s.step >= 2 * from) continue;
      kl.push_back(s.kl);
      prompts.push_back(pair.prompt);
      last = std::max(last, s.step);
    }
    if (kl.empty()) return rows;
    const Stat stat = summarize(kl, prompts);
    rows.push_back({{"steps", from == last ? std::to_string(from) : fmt::format("{}–{}", from, last)},
                    {"n_steps", kl.size()},
                    {"kl_nats",
                     {{"value", to_json_value(stat.mean)},
                      {"low", to_json_value(stat.ci_low)},
                      {"high", to_json_value(stat.ci_high)}}}});
  }
}

}  // namespace kvdiv
