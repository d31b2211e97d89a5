#include "common_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "common_simulation.h"
#include "kvdiv/base/fields.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv {
namespace {

/// Steps looked at whether or not logits differ in them: that a token is fed twice need not reach the logits.
constexpr std::int64_t kFirstSteps = 3;
/// Steps that a text is made longer by to tell a window that is open from one that is some keys too long.
constexpr std::int64_t kMoreSteps = 8;
/// Steps from the first that differs on in which faults are simulated.
constexpr std::int64_t kSimulatedSteps = 4;
/// Tokens in a call where the prompt is fed in chunks, to see what only then differs.
constexpr std::int64_t kProbeChunk = 5;

WeightOf weights_of(const Arms& arms) {
  auto by_name = std::make_shared<std::map<std::string, at::Tensor>>();
  Decoder decoder = arms.decoder();
  for (const NamedWeight& w : decoder.weights())
    if (w.shape.size() == 1) (*by_name)[w.name] = decoder.plain(w).to(at::kCPU, at::kDouble);
  return [by_name](const std::string& name) { return by_name->at(name); };
}

Trajectory decode_text(const Arms& arms, std::span<const TokenId> prompt, std::int64_t n_steps) {
  const std::int64_t room = arms.config().sizes.max_positions - std::ssize(prompt);
  return decode_trajectory(arms, {prompt, std::clamp<std::int64_t>(n_steps, 1, std::max<std::int64_t>(1, room)), {}});
}

/// The first step at which logits differ by more than float64's own rounding.
std::optional<std::int64_t> first_step_apart(const Trajectory& text) {
  for (std::int64_t s = 0; s < text.n_steps(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    double size = 0.0;
    for (const double v : text.logits_off[i]) size = std::max(size, std::fabs(v));
    if (compare_logits(text.logits_on[i], text.logits_off[i]).max_abs_dlogit > kFp64Agreement * size) return s;
  }
  return std::nullopt;
}

RowCounts count_rows(const ObservedStep& s) {
  return {s.step, s.expected_on(), s.on.n_rows(), s.expected_off(), s.off.n_rows()};
}

bool is_right(const RowCounts& r) { return r.on == r.expected_on && r.off == r.expected_off; }

/// In some layer ON sees all keys though OFF does not: it may be a window that is too long by more than the text is.
bool is_open(const std::vector<LowestKey>& lowest) {
  return std::any_of(lowest.begin(), lowest.end(), [](const LowestKey& k) { return k.on == 0 && k.off > 0; });
}

class Examination {
 public:
  Examination(const Patient& patient, const DiagnosisOptions& options) : patient_(patient), options_(options) {}
  Diagnosis run();

 private:
  bool look_in_float64();
  bool look_at_steps(const Trajectory& text);
  void look_at_windows(const Trajectory& text, const ObservedStep& last);
  void ask(const ObservedStep& step);
  bool look_at_chunks(const Trajectory& text);
  void look_in_compute_dtype();
  Diagnosis conclude(std::vector<Finding> findings) const;

  const Patient& patient_;
  const DiagnosisOptions& options_;
  Evidence evidence_;
  std::optional<Trajectory> text_;  ///< in float64, of the prompt that shows a difference
  bool is_bit_equal_ = true;
};

/// The first prompt at which the arms differ in float64, whole or in chunks.
bool Examination::look_in_float64() {
  for (const auto& prompt : patient_.prompts) {
    Trajectory text = decode_text(patient_.wide, prompt, options_.max_steps);
    evidence_.n_prompt = text.n_prompt();
    if (!look_at_steps(text) && !look_at_chunks(text)) continue;
    text_ = std::move(text);
    evidence_.in_float64 = true;
    return true;
  }
  return false;
}

/// Looks at the first steps and, if these agree, at the one at which the logits part.
bool Examination::look_at_steps(const Trajectory& text) {
  const Arms& arms = patient_.wide;
  std::vector<std::int64_t> steps;
  for (std::int64_t s = 0; s < std::min(kFirstSteps, text.n_steps()); ++s) steps.push_back(s);
  if (const auto apart = first_step_apart(text); apart && *apart >= kFirstSteps) steps.push_back(*apart);
  const ObservedSteps observed = observe(arms, text, steps);
  evidence_.rows.clear();
  bool differs = false;
  for (const auto& step : observed) {
    evidence_.rows.push_back(count_rows(*step));
    const auto first = first_difference(*step, evidence_.n_layers, kFp64Agreement);
    if (!first && is_right(evidence_.rows.back())) continue;
    if (!differs) evidence_.first = first.value_or(FirstDifference{step->step, 0, Site::embedding, 1.0, std::nullopt});
    if (!differs && first) ask(*step);
    differs = true;
  }
  if (!differs) return false;
  evidence_.on_late_by = late_by(text.logits_on, text.logits_off);
  evidence_.off_late_by = late_by(text.logits_off, text.logits_on);
  evidence_.future_on = largest_future_weight(observed.front()->on, evidence_.n_layers);
  evidence_.future_off = largest_future_weight(observed.front()->off, evidence_.n_layers);
  evidence_.first_row_twice_on = is_first_row_twice(*observed.front());
  if (evidence_.first && evidence_.first->site == Site::weights) look_at_windows(text, *observed.back());
  return true;
}

/// The lowest keys seen at the last step looked at; of a longer text if in this one all keys are seen.
void Examination::look_at_windows(const Trajectory& text, const ObservedStep& last) {
  const Arms& arms = patient_.wide;
  evidence_.lowest = lowest_keys(last, arms.config());
  if (!is_open(evidence_.lowest)) return;
  const Trajectory longer = decode_text(arms, text.prompt, last.step + 1 + kMoreSteps);
  const std::vector<std::int64_t> step{longer.n_steps() - 1};
  evidence_.lowest = lowest_keys(*observe(arms, longer, step).front(), arms.config());
}

/// What there is to ask at the place of the first difference.
void Examination::ask(const ObservedStep& step) {
  const FirstDifference& first = *evidence_.first;
  if (first.missing_in) return;
  const ModelConfig& config = patient_.wide.config();
  evidence_.rotary = rotary_shift(step, first, config);
  if (is_stored(first.site)) evidence_.stored = stored_difference(step, first.layer);
  evidence_.norm_eps = norm_epsilon(step, first, config, weights_of(patient_.wide));
}

/// ON fed the prompt in chunks, against OFF's whole one: a mask that is wrong for some calls only.
bool Examination::look_at_chunks(const Trajectory& text) {
  if (text.n_prompt() <= kProbeChunk) return false;
  const auto step = observe_chunked(patient_.wide, text, kProbeChunk);
  const auto first = first_difference(*step, evidence_.n_layers, kFp64Agreement);
  if (!first) return false;
  evidence_.in_chunks = true;
  evidence_.first = first;
  evidence_.future_on = largest_future_weight(step->on, evidence_.n_layers);
  evidence_.future_off = largest_future_weight(step->off, evidence_.n_layers);
  return true;
}

/// Nothing is left in float64: whether a bit differs in the compute dtype, and whether its norms round where they must.
void Examination::look_in_compute_dtype() {
  const Arms& arms = patient_.compute;
  for (const auto& prompt : patient_.prompts) {
    const Trajectory text = decode_text(arms, prompt, options_.max_steps);
    bool is_equal = true;
    for (std::size_t s = 0; s < text.logits_on.size(); ++s)
      is_equal = is_equal && compare_logits(text.logits_on[s], text.logits_off[s]).bit_equal;
    if (is_equal || text.n_steps() < 2) continue;
    is_bit_equal_ = false;
    const std::vector<std::int64_t> steps{1};
    const ObservedSteps observed = observe(arms, text, steps);
    evidence_.n_prompt = text.n_prompt();
    evidence_.first = first_difference(*observed.front(), evidence_.n_layers, 0.0);
    evidence_.norm_order = norm_order(*observed.front(), arms.config(), arms.decoder().dtype(), weights_of(arms));
    return;
  }
}

std::optional<DiagnosisPlace> place_of(const Evidence& evidence, const std::optional<Fault>& fault) {
  if (!evidence.first) return std::nullopt;
  const FirstDifference& first = *evidence.first;
  const bool is_embedding = first.site == Site::embedding;
  return DiagnosisPlace{first.step, is_embedding ? 0 : first.layer + 1, std::string(name_of_site(first.site)),
                        fault ? std::string(name_of(arm_of(*fault))) : ""};
}

Diagnosis Examination::conclude(std::vector<Finding> findings) const {
  Diagnosis d;
  const bool ties = findings.size() > 1;
  if (text_ && (ties || options_.n_nearest > 0)) {
    const Simulation simulation(patient_.wide.decoder(), *text_, evidence_.first->step + kSimulatedSteps);
    if (ties) simulation.sort_by_distance(findings);
    d.nearest = simulation.nearest(findings, static_cast<std::size_t>(options_.n_nearest));
  }
  std::optional<Fault> fault;
  if (!findings.empty()) fault = findings.front().estimate.fault;
  d.where = place_of(evidence_, fault);
  d.evidence = to_json(evidence_);
  if (fault) {
    d.name = name_of(*fault);
    d.sentence = findings.front().sentence;
  } else if (text_) {
    d.name = "unknown";
    d.sentence = fmt::format("the arms part at {} of layer {} at step {}, and no known symptom fits",
                             d.where->operation, d.where->layer, d.where->step);
  } else if (is_bit_equal_) {
    d.name = "healthy";
    d.sentence = "no bit differs between the arms";
  } else {
    d.name = "rounding";
    d.sentence = "nothing is left of the difference in float64";
  }
  return d;
}

Diagnosis Examination::run() {
  evidence_.n_layers = patient_.wide.config().sizes.n_layers;
  evidence_.eps = patient_.wide.config().rms_norm_eps;
  if (!look_in_float64()) look_in_compute_dtype();
  return conclude(matching_symptoms(evidence_));
}

}  // namespace

Diagnosis diagnose(const Patient& patient, const DiagnosisOptions& options) {
  return Examination(patient, options).run();
}

}  // namespace kvdiv
