#include "noise_reference.h"

#include <algorithm>
#include <cmath>

#include "kvdiv/numerics/half.h"
#include "kvdiv/stats/metrics.h"
#include "noise_rates.h"

namespace kvdiv {
namespace {

/// FP16's error in a key or value is no smaller where the element is small, so its relative size has no mean square: an
/// element is held against no less than this share of its layer's root mean square.
constexpr double kFloor = 0.1;
constexpr std::array<NoiseWhat, 3> kWhats{NoiseWhat::k, NoiseWhat::v, NoiseWhat::kv};

double root_mean_square(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double v : x) sum += v * v;
  return x.empty() ? 0.0 : std::sqrt(sum / static_cast<double>(x.size()));
}

double squared(const std::optional<double>& x) { return x.value_or(0.0) * x.value_or(0.0); }

}  // namespace

WalkedText walk_along(const Arms& arms, const Trajectory& t) {
  WalkedText out{arms.decoder().make_cache(t.n_prompt() + t.n_steps()), {}};
  out.logits.push_back(host_logits(arms.on(t.prompt, out.cache)));
  for (std::int64_t step = 1; step < t.n_steps(); ++step)
    out.logits.push_back(host_logits(arms.on(t.newest(step), out.cache)));
  return out;
}

void NoiseReference::add(std::int64_t prompt_index, const Text& text) {
  std::array<RelativeChange, 2> change{RelativeChange(n_layers_), RelativeChange(n_layers_)};
  for (std::int64_t layer = 0; layer < n_layers_; ++layer)
    for (const CachePart part : {CachePart::keys, CachePart::values}) {
      const auto of = [&](const KvCache& cache) {
        return host_logits((part == CachePart::keys ? cache.keys(layer) : cache.values(layer)).reshape({-1}));
      };
      const std::vector<double> fine = of(text.fine);
      std::vector<double> rounded = fine;
      for (double& x : rounded) x = round_to_half(x);
      change[storage].add(part, layer, fine, rounded);
      change[model].add(part, layer, fine, of(text.half), kFloor * root_mean_square(fine));
    }
  PerPrompt p;
  for (const Error error : {storage, model}) {
    p.n_nonfinite[error] = change[error].n_nonfinite();
    for (const NoiseWhat what : kWhats) {
      const auto w = static_cast<std::size_t>(what);
      p.size2[error][w] = squared(change[error].by_norm(what != NoiseWhat::v, what != NoiseWhat::k));
      p.rms2[error][w] = squared(change[error].by_element(what != NoiseWhat::v, what != NoiseWhat::k));
    }
  }
  for (std::size_t s = 1; s < text.fine_logits.size(); ++s) {
    const StepMetrics m = compare_logits(text.fine_logits[s], text.half_logits[s]);
    p.n_steps += 1.0;
    p.flips += m.top1_equal || m.tie_on || m.tie_off ? 0.0 : 1.0;
  }
  p.flipped_texts = p.flips > 0.0 ? 1.0 : 0.0;
  prompts_[prompt_index] = p;
}

std::vector<NoiseReference::PerPrompt> NoiseReference::in_order() const {
  std::vector<PerPrompt> out;
  for (const auto& [index, prompt] : prompts_) out.push_back(prompt);
  return out;
}

BootstrapInterval NoiseReference::size_of(Error error, NoiseWhat what) const {
  const std::vector<PerPrompt> prompts = in_order();
  return bootstrap_interval(
      std::ssize(prompts),
      [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
        double sum = 0.0;
        for (const std::uint32_t i : drawn) sum += prompts[i].size2[error][static_cast<std::size_t>(what)];
        return std::sqrt(sum / static_cast<double>(drawn.size()));
      },
      BootstrapMethod::percentile);
}

Json NoiseReference::row(Error error, NoiseWhat what) const {
  const std::vector<PerPrompt> prompts = in_order();
  double rms2 = 0.0;
  std::int64_t n_nonfinite = 0;
  for (const PerPrompt& p : prompts) {
    rms2 += p.rms2[error][static_cast<std::size_t>(what)];
    n_nonfinite += p.n_nonfinite[error];
  }
  Json j = {{"error", error == storage ? "stored in FP16" : "computed in FP16"}, {"what", name_of(what)}};
  j["relative_size"] = to_json_value(size_of(error, what));
  j["relative_rms"] = to_json_value(std::sqrt(rms2 / static_cast<double>(prompts.size())));
  j["rms_floor"] = error == storage ? 0.0 : kFloor;
  j["n_nonfinite"] = n_nonfinite;
  j["flip_rate"] = j["text_flip_rate"] = nullptr;
  if (error == storage || what != NoiseWhat::kv) return j;  // the whole model is in FP16: both keys and values
  j["flip_rate"] = to_json_value(ratio_interval(prompts, &PerPrompt::flips, &PerPrompt::n_steps));
  j["text_flip_rate"] = to_json_value(ratio_interval(prompts, &PerPrompt::flipped_texts, &PerPrompt::n_texts));
  return j;
}

Json NoiseReference::rows() const {
  Json out = Json::array();
  if (prompts_.empty()) return out;
  for (const Error error : {storage, model})
    for (const NoiseWhat what : kWhats) out.push_back(row(error, what));
  return out;
}

}  // namespace kvdiv
