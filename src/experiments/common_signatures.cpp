#include "common_signatures.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "common_setup.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/states.h"
#include "kvdiv/stats/sum.h"
#include "kvdiv/stats/summary.h"

namespace kvdiv {
namespace {

struct Mean {
  CompensatedSum sum;
  std::int64_t n = 0;
  void add(double value) { sum.add(value), ++n; }
  double value() const { return n > 0 ? sum.value() / static_cast<double>(n) : 0.0; }
};

/// The newest token's residual stream behind layer 1 at step 1.
std::optional<double> drift_at_step_one(const Decoder& decoder, const Planted& planted,
                                        const std::vector<TokenId>& prompt, TokenId token) {
  const auto wanted = [](Site site, std::int64_t layer) { return site == Site::block && layer == 0; };
  CaptureTap on(wanted, CaptureTap::Rows::last), off(wanted, CaptureTap::Rows::last);
  const Arms arms(decoder, planted);
  KvCache cache = decoder.make_cache(std::ssize(prompt) + 2);
  arms.on(prompt, cache);
  arms.on(std::span(&token, 1), cache, &on);
  std::vector<TokenId> prefix = prompt;
  arms.off(prefix);  // a text begins with its prompt
  prefix.push_back(token);
  arms.off(prefix, &off);
  return compare_states(host_logits(on.at(Site::block, 0).reshape({-1})),
                        host_logits(off.at(Site::block, 0).reshape({-1})))
      .rel_l2;
}

constexpr double kFurthest = 10.0;

/// |log10| of how far a number is outside of low … high.
double orders_apart(double measured, const std::vector<double>& published) {
  const double low = published.front(), high = published.back();
  if (measured >= low && measured <= high) return 0.0;
  const double bound = measured < low ? low : high;
  return bound > 0.0 && measured > 0.0 ? std::min(kFurthest, std::fabs(std::log10(measured / bound))) : kFurthest;
}

std::optional<double> kl_distance(const SignatureNumbers& n, const PublishedNumbers& published) {
  if (!published.kl_nats) return std::nullopt;
  return std::min(orders_apart(n.same_prefix_kl_nats, *published.kl_nats),
                  orders_apart(n.free_running_kl_nats, *published.kl_nats));
}

std::optional<double> share_distance(double measured, const std::optional<std::vector<double>>& published) {
  constexpr double kFloor = 0.01;
  if (!published) return std::nullopt;
  std::vector<double> bounds = *published;
  for (double& bound : bounds) bound += kFloor;
  return orders_apart(measured + kFloor, bounds);
}

std::optional<double> root_mean_square(std::initializer_list<std::optional<double>> values) {
  double sum = 0.0;
  int n = 0;
  for (const auto& v : values)
    if (v) sum += *v * *v, ++n;
  return n > 0 ? std::optional(std::sqrt(sum / n)) : std::nullopt;
}

}  // namespace

SignatureNumbers measure_signature(const Decoder& decoder, const Planted& planted,
                                   std::span<const std::vector<TokenId>> prompts, const SignatureParams& params) {
  Mean same, free, flips, diverged, drift;
  std::vector<double> flip_indices;
  for (const std::vector<TokenId>& prompt : prompts) {
    PairRequest request;
    request.prompt = prompt;
    request.max_new_tokens = params.n_steps;
    request.choose = [](std::span<const double> logits, std::int64_t) { return argmax_token(logits); };
    request.planted = planted;
    const PairOutcome outcome = decode_pair(decoder, request, [&](const StepView& step) {
      const double kl = metrics_of(step).kl_on_off_nats;
      if (step.same_prefix) same.add(kl), flips.add(step.token_on != step.token_off ? 1.0 : 0.0);
      if (step.clock != Clock::forced) free.add(kl);
    });
    diverged.add(outcome.tokens_on != outcome.tokens_off ? 1.0 : 0.0);
    if (outcome.flip_index) flip_indices.push_back(static_cast<double>(*outcome.flip_index));
    if (outcome.tokens_on.empty()) continue;
    if (const auto d = drift_at_step_one(decoder, planted, prompt, outcome.tokens_on.front())) drift.add(*d);
  }
  std::sort(flip_indices.begin(), flip_indices.end());
  SignatureNumbers out{same.value(), free.value(), flips.value(), diverged.value(), std::nullopt, std::nullopt};
  if (!flip_indices.empty()) out.flip_index = quantile_sorted(flip_indices, 0.5);
  if (drift.n > 0) out.first_layer_drift = drift.value();
  return out;
}

std::vector<std::vector<TokenId>> cut_prompts(std::span<const PromptItem> prompts, std::size_t n_prompts,
                                              std::int64_t n_tokens) {
  std::vector<std::vector<TokenId>> out;
  for (const PromptItem& p : prompts.first(std::min(n_prompts, prompts.size())))
    out.emplace_back(p.ids.begin(), p.ids.begin() + std::min<std::int64_t>(n_tokens, std::ssize(p.ids)));
  return out;
}

SignatureDistance signature_distance(const std::string& symptom, const SignatureNumbers& float16,
                                     const SignatureNumbers& float32, const PublishedSignature& published) {
  SignatureDistance d;
  d.symptom = symptom;
  d.kl_16 = kl_distance(float16, published.float16);
  d.diverged_16 = share_distance(float16.diverged, published.float16.diverged);
  d.kl_32 = kl_distance(float32, published.float32);
  d.diverged_32 = share_distance(float32.diverged, published.float32.diverged);
  d.float16 = root_mean_square({d.kl_16, d.diverged_16});
  d.both = root_mean_square({d.kl_16, d.diverged_16, d.kl_32, d.diverged_32});
  return d;
}

}  // namespace kvdiv
