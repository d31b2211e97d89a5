#include "html_kl_by_step.h"

#include <array>
#include <cmath>
#include <utility>

namespace kvdiv {

void KlBySteps::Bin::merge(const Bin& other) {
  n += other.n;
  n_zero += other.n_zero;
  n_nonfinite += other.n_nonfinite;
  n_of_prompt += other.n_of_prompt;
  sum += other.sum;
  sum_of_prompt += other.sum_of_prompt;
  prompts.merge(other.prompts);
}

void KlBySteps::halve() {
  for (std::size_t i = 0; i < bins_.size(); i += 2) {
    Bin joined = std::move(bins_[i]);
    if (i + 1 < bins_.size()) joined.merge(bins_[i + 1]);
    bins_[i / 2] = std::move(joined);
  }
  bins_.resize((bins_.size() + 1) / 2);
  width_ *= 2;
}

void KlBySteps::add(std::int64_t step, double kl_nats) {
  while (step / width_ >= static_cast<std::int64_t>(kMaxBins)) halve();
  const auto index = static_cast<std::size_t>(step / width_);
  if (index >= bins_.size()) bins_.resize(index + 1);
  Bin& bin = bins_[index];
  if (!std::isfinite(kl_nats)) {
    ++bin.n_nonfinite;
    return;
  }
  ++bin.n;
  bin.n_zero += kl_nats == 0.0;
  bin.sum += kl_nats;
  ++bin.n_of_prompt;
  bin.sum_of_prompt += kl_nats;
}

void KlBySteps::end_prompt() {
  for (Bin& bin : bins_) {
    if (bin.n_of_prompt > 0) bin.prompts.add(bin.sum_of_prompt / static_cast<double>(bin.n_of_prompt));
    bin.n_of_prompt = 0;
    bin.sum_of_prompt = 0.0;
  }
}

std::int64_t KlBySteps::n() const {
  std::int64_t total = 0;
  for (const Bin& bin : bins_) total += bin.n;
  return total;
}

Json KlBySteps::to_json() const {
  constexpr std::array<std::pair<const char*, double>, 5> kQuantiles{
      {{"p5", 0.05}, {"p25", 0.25}, {"median", 0.5}, {"p75", 0.75}, {"p95", 0.95}}};
  Json out = {{"width", width_}};
  for (const char* key : {"step", "n", "n_zero", "n_nonfinite", "mean", "p5", "p25", "median", "p75", "p95"})
    out[key] = Json::array();
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    const Bin& bin = bins_[i];
    if (bin.n + bin.n_nonfinite == 0) continue;
    out["step"].push_back(static_cast<std::int64_t>(i) * width_);
    out["n"].push_back(bin.n);
    out["n_zero"].push_back(bin.n_zero);
    out["n_nonfinite"].push_back(bin.n_nonfinite);
    out["mean"].push_back(bin.n > 0 ? Json(bin.sum / static_cast<double>(bin.n)) : Json());
    for (const auto& [key, q] : kQuantiles)
      out[key].push_back(bin.prompts.n() > 0 ? Json(bin.prompts.quantile(q)) : Json());
  }
  return out;
}

}  // namespace kvdiv
