#include "common_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/sum.h"

namespace kvdiv {
namespace {

double mean_kl_of(const std::vector<std::vector<double>>& observed, const std::vector<std::vector<double>>& simulated) {
  CompensatedSum sum;
  for (std::size_t s = 0; s < simulated.size(); ++s) sum.add(compare_logits(observed[s], simulated[s]).kl_on_off_nats);
  const double mean = sum.value() / static_cast<double>(simulated.size());
  return std::isnan(mean) ? std::numeric_limits<double>::infinity() : mean;  // no softmax to compare: as far as can be
}

}  // namespace

Simulation::Simulation(const Decoder& healthy, const Trajectory& observed, std::int64_t n_steps)
    : decoder_(healthy), observed_(observed), n_steps_(std::min(n_steps, observed.n_steps())) {
  const Arms arms(decoder_);
  healthy_on_ = on(arms);
  healthy_off_ = off(arms);
}

Simulation::Rows Simulation::on(const Arms& arms) const {
  Rows rows;
  KvCache cache = arms.decoder().make_cache(observed_.n_prompt() + observed_.n_steps());
  for (std::int64_t s = 0; s < n_steps_; ++s)
    rows.push_back(host_logits(arms.on(s == 0 ? std::span(observed_.prompt) : observed_.newest(s), cache)));
  return rows;
}

Simulation::Rows Simulation::off(const Arms& arms) const {
  Rows rows;
  for (std::int64_t s = 0; s < n_steps_; ++s) rows.push_back(host_logits(arms.off(observed_.prefix(s))));
  return rows;
}

double Simulation::distance(const std::optional<FaultSpec>& spec) const {
  if (!spec) return mean_kl_of(observed_.logits_on, healthy_on_) + mean_kl_of(observed_.logits_off, healthy_off_);
  const PlantedFault fault(*spec);
  const Arms arms(decoder_, fault.planted());
  const bool is_on = arm_of(spec->fault) == Arm::on;
  return mean_kl_of(observed_.logits_on, is_on ? on(arms) : healthy_on_) +
         mean_kl_of(observed_.logits_off, is_on ? healthy_off_ : off(arms));
}

void Simulation::sort_by_distance(std::vector<Finding>& findings) const {
  std::vector<std::pair<double, Finding>> by_distance;
  for (Finding& f : findings) {
    const double d = distance(f.estimate);
    by_distance.emplace_back(d, std::move(f));
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  findings.clear();
  for (auto& [d, f] : by_distance) findings.push_back(std::move(f));
}

std::vector<NearSymptom> Simulation::nearest(const std::vector<Finding>& findings, std::size_t n) const {
  std::vector<NearSymptom> out{{"healthy", distance(std::nullopt)}};
  for (const Symptom& symptom : symptoms()) {
    FaultSpec spec;
    spec.fault = symptom.fault;
    for (const Finding& f : findings)
      if (f.estimate.fault == symptom.fault) spec = f.estimate;
    if (!cannot_be_planted(spec, decoder_.config(), decoder_.dtype(), observed_.n_prompt(),
                           observed_.n_prompt() + n_steps_ - 1)
             .empty())
      continue;
    out.push_back({std::string(name_of(symptom.fault)), distance(spec)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const NearSymptom& a, const NearSymptom& b) { return a.distance_nats < b.distance_nats; });
  if (out.size() > n) out.resize(n);
  return out;
}

}  // namespace kvdiv
