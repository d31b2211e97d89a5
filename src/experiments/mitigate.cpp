#include "kvdiv/experiments/mitigate.h"

#include <algorithm>
#include <map>

#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/model/memory.h"
#include "mitigate_models.h"
#include "mitigate_search.h"
#include "mitigate_summary.h"
#include "mitigate_walk.h"

namespace kvdiv {
namespace {

constexpr std::size_t kFp64Prompts = 4, kSearchPrompts = 3;
constexpr std::int64_t kFp64Steps = 16, kSearchSteps = 12;

using Rows = std::vector<std::vector<double>>;

class MitigateRun {
 public:
  MitigateRun(Context& context, const MitigateParams& params)
      : context_(context),
        params_(params),
        remedies_(remedies_on(context.device, params)),
        condition_{params.dtype.front(), params.backend.front(), Strategy::greedy},
        models_(context, params, result_),
        summary_(remedies_.size()) {}
  ExperimentResult execute();

 private:
  /// What a prompt's walks are held against: OFF of each arithmetic, and ON without a remedy.
  struct Reference {
    std::map<Arithmetic, WalkedSteps> off;
    Rows on_without;
  };
  void decode_texts();
  void decode_truth();
  void group(const std::vector<const Remedy*>& remedies);
  Reference reference(const std::vector<const Remedy*>& remedies, std::size_t prompt);
  void measure(const Remedy& remedy, std::size_t prompt, const Reference& reference);
  void compare_on(const Remedy& remedy, const Rows& on, const Reference& reference, MeasuredText& measured);
  void write_records();
  Json search();
  GivenText text(std::size_t prompt) const { return {context_.prompts[prompt].ids, tokens_[prompt]}; }
  std::int64_t longest_text() const { return longest_prompt(context_.prompts) + params_.max_steps; }

  Context& context_;
  const MitigateParams& params_;
  const std::vector<Remedy> remedies_;
  const Condition condition_;
  ExperimentResult result_;
  RemedyModels models_;
  MitigateSummary summary_;
  std::vector<std::vector<TokenId>> tokens_;  ///< per prompt: what ON chose without a remedy
  std::vector<Rows> truth_;                   ///< OFF in float64 on the first steps of the first prompts
  std::map<std::pair<std::size_t, std::size_t>, MitigateRecord> records_;  ///< by (prompt, remedy), not written yet
  std::pair<std::size_t, std::size_t> next_record_{0, 0};
  std::int64_t n_done_ = 0;
  bool on_on_ = true, prefill_ = true, wide_cache_ = true;
};

void MitigateRun::decode_texts() {
  const Arms arms = arms_of(models_.of(Arithmetic::base), context_);
  context_.progress.stage("texts, without a remedy");
  for (const PromptItem& item : context_.prompts) {
    if (interrupted()) return;
    TrajectoryRequest request;
    request.prompt = item.ids;
    request.max_steps = params_.max_steps;
    if (!params_.ignore_eos) request.eos_ids = context_.config.eos_ids;
    request.with_off = false;
    tokens_.push_back(decode_trajectory(arms, request).tokens);
    context_.progress.update({std::ssize(tokens_), std::ssize(context_.prompts), 0.0, 0.0});
  }
  context_.progress.end_stage();
}

/// How far a remedy is from the exact result, whether its arms agree or not.
void MitigateRun::decode_truth() {
  const std::size_t n = std::min(kFp64Prompts, tokens_.size());
  const std::uint64_t need = memory_need(context_.config, DType::float64, longest_text()).total();
  if (need > available_memory_bytes(context_.device)) {
    context_.warnings.add(WarningCode::fp64_check_skipped,
                          fmt::format("the distance to float64 needs {}", human_bytes(static_cast<double>(need))));
    return;
  }
  context_.progress.stage("float64");
  const LoadedModel model = context_.load(DType::float64, "torch", "eager");
  const Arms arms = arms_of(model.decoder, context_);
  for (std::size_t prompt = 0; prompt < n && !interrupted(); ++prompt) {
    const std::int64_t n_steps = std::min(kFp64Steps, text(prompt).n_steps());
    truth_.push_back(walk_off(arms, text(prompt), n_steps, "float64").logits);
    context_.progress.update({std::ssize(truth_), static_cast<std::int64_t>(n), 0.0, 0.0});
  }
  context_.progress.end_stage();
}

/// OFF of every arithmetic before any ON is timed: each of them then finds the machine as the one before it left it.
MitigateRun::Reference MitigateRun::reference(const std::vector<const Remedy*>& remedies, std::size_t prompt) {
  Reference out;
  const GivenText given = text(prompt);
  for (const Remedy* remedy : remedies) {
    const Arithmetic arithmetic = remedy->kind->arithmetic;
    if (out.off.contains(arithmetic) || interrupted()) continue;  // remedies of the cache have the OFF of the run
    const Arms arms = arms_of(models_.of(arithmetic), context_);
    out.off[arithmetic] = walk_off(arms, given, given.n_steps(), remedy->name);
  }
  if (out.off.contains(Arithmetic::base))
    out.on_without = walk_on(arms_of(models_.of(Arithmetic::base), context_), given, nullptr, "none").logits;
  return out;
}

/// ON against ON without a remedy, where both compute alike.
void MitigateRun::compare_on(const Remedy& remedy, const Rows& on, const Reference& reference, MeasuredText& m) {
  if (remedy.kind->arithmetic != Arithmetic::base) return;
  m.n_on_as_without = 0;
  for (std::size_t s = 0; s < on.size(); ++s)
    *m.n_on_as_without += compare_logits(on[s], reference.on_without[s]).bit_equal;
  const bool all = *m.n_on_as_without == std::ssize(on);
  if (remedy.kind->cache == CacheForm::as_computed) on_on_ = on_on_ && all;
  if (remedy.kind->cache == CacheForm::float32) wide_cache_ = wide_cache_ && all;
}

void MitigateRun::measure(const Remedy& remedy, std::size_t prompt, const Reference& reference) {
  const Arms arms = arms_of(models_.of(remedy.kind->arithmetic), context_);
  const GivenText given = text(prompt);
  const WalkedSteps& off = reference.off.at(remedy.kind->arithmetic);
  const auto for_cache = remedy.for_cache(context_.config, std::ssize(given.prompt) + given.n_steps());
  const WalkedSteps on = walk_on(arms, given, for_cache.get(), remedy.name);
  MeasuredText m;
  m.seconds_on = on.seconds;
  m.seconds_off = off.seconds;
  for (std::size_t s = 0; s < on.logits.size(); ++s) m.steps.push_back(compare_logits(on.logits[s], off.logits[s]));
  prefill_ = prefill_ && m.steps.front().bit_equal;
  compare_on(remedy, on.logits, reference, m);
  if (prompt < truth_.size())
    for (std::size_t s = 0; s < truth_[prompt].size(); ++s) {
      m.off_to_fp64.push_back(compare_logits(truth_[prompt][s], off.logits[s]).kl_on_off_nats);
      m.on_to_fp64.push_back(compare_logits(truth_[prompt][s], on.logits[s]).kl_on_off_nats);
    }
  const auto place = static_cast<std::size_t>(&remedy - remedies_.data());
  summary_.add(place, static_cast<std::int32_t>(prompt), m);
  records_[{prompt, place}] = record_of(remedy, m);
}

/// In one order, by prompt and then by remedy, whatever order they were measured in.
void MitigateRun::write_records() {
  for (auto it = records_.begin(); it != records_.end() && it->first == next_record_; it = records_.erase(it)) {
    it->second.pair_id = fmt::format("{}/{}", condition_.name(), context_.prompts[next_record_.first].id);
    context_.sink.add(it->second);
    if (++next_record_.second < remedies_.size()) continue;
    next_record_ = {next_record_.first + 1, 0};
    context_.sink.commit();
  }
}

/// Remedies take turns on each prompt, each prompt beginning with the next one, so that a machine that is busy for a
/// while slows them all.
void MitigateRun::group(const std::vector<const Remedy*>& remedies) {
  const auto n_total = static_cast<std::int64_t>(remedies_.size() * tokens_.size());
  for (const Remedy* remedy : remedies) models_.of(remedy->kind->arithmetic);  // loaded before anything is timed
  context_.progress.stage(fmt::format("remedies, {}", condition_.name()));
  for (std::size_t prompt = 0; prompt < tokens_.size(); ++prompt) {
    const Reference held_against = reference(remedies, prompt);
    for (std::size_t i = 0; i < remedies.size(); ++i) {
      if (interrupted()) return;
      measure(*remedies[(prompt + i) % remedies.size()], prompt, held_against);
      context_.progress.update({++n_done_, n_total, 0.0, 0.0});
    }
    write_records();
  }
  context_.progress.end_stage();
}

Json MitigateRun::search() {
  const OpsOf usual = models_.usual(), fixed = models_.invariant();
  SetSearch search{usual, fixed, context_.planted, {}, params_.max_kl, params_.max_subsets};
  for (std::size_t prompt = 0; prompt < tokens_.size() && search.texts.size() < kSearchPrompts; ++prompt) {
    GivenText given = text(prompt);
    if (given.n_steps() < 2)
      continue;  // the text ended at once: its only step is the same work in
                 // both arms
    given.tokens = given.tokens.first(std::min<std::size_t>(kSearchSteps, given.tokens.size()));
    search.texts.push_back(given);
  }
  return search.texts.empty() ? Json(nullptr) : search_smallest_set(search, context_.progress);
}

ExperimentResult MitigateRun::execute() {
  decode_texts();
  if (!interrupted()) decode_truth();
  if (interrupted()) return std::move(result_);
  const auto groups = groups_that_fit(remedies_, context_.config, condition_.dtype, longest_text(),
                                      available_memory_bytes(context_.device));
  for (const auto& remedies : groups) {
    if (groups.size() > 1) models_.drop();
    group(remedies);
    if (interrupted()) return std::move(result_);
  }
  Json j = condition_.to_json();
  j["n_prompts"] = tokens_.size();
  j["n_positions"] = longest_text();
  j["interleaved"] = groups.size() == 1;
  j["remedies"] = summary_.rows(remedies_, context_.config, params_, longest_text());
  result_.controls = {{"prefill_bit_equal", prefill_}, {"on_on_bit_equal", on_on_}};
  if (std::any_of(remedies_.begin(), remedies_.end(),
                  [](const Remedy& r) { return r.kind->cache == CacheForm::float32; }))
    result_.controls["float32_cache_changes_nothing"] = wide_cache_;
  models_.drop();
  j["search"] = params_.no_search ? Json(nullptr) : search();
  if (interrupted()) return std::move(result_);
  if (j["search"].is_object()) result_.controls["all_fixed_meets_limit"] = j["search"]["all_fixed_meets_limit"];
  result_.verdict = mitigate_verdict(j, result_.controls, params_.max_kl);
  result_.conditions.push_back(std::move(j));
  context_.sink.checkpoint(result_);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

ExperimentResult run_mitigate(Context& context, const MitigateParams& params) {
  validate(params);
  warn_few_prompts(context);
  return MitigateRun(context, params).execute();
}

}  // namespace kvdiv
