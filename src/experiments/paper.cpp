#include "kvdiv/experiments/paper.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "common_setup.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/experiments/boundary.h"
#include "kvdiv/experiments/drift.h"
#include "kvdiv/experiments/falsify.h"
#include "kvdiv/experiments/patch.h"
#include "kvdiv/experiments/run.h"
#include "kvdiv/stats/pair_table.h"
#include "paper_parts.h"
#include "paper_signatures.h"

namespace kvdiv {
namespace {

/// Passes records on; those of `run` also go into the table that the other experiments read. The report on the way is the
/// paper's, not that of the experiment in hand.
class PaperSink final : public RecordSink {
 public:
  PaperSink(RecordSink& to, const ExperimentResult& so_far) : to_(to), so_far_(so_far) {}
  void write(std::string_view type, const Json& record) override { to_.write(type, record); }
  void see(const StepRecord& record) override {
    if (is_run) table.add(record);
  }
  void see(const PairRecord& record) override {
    if (is_run) table.add(record);
  }
  void commit() override { to_.commit(); }
  void checkpoint(const ExperimentResult&) override { to_.checkpoint(so_far_); }

  PairTable table;
  bool is_run = true;

 private:
  std::optional<FinishedPair> next_finished(const std::string& pair_id) override {
    return is_run ? to_.take_finished(pair_id) : std::nullopt;
  }
  RecordSink& to_;
  const ExperimentResult& so_far_;
};

class Paper {
 public:
  Paper(Context& context, const PaperParams& params, const Json& published)
      : context_(context), params_(params), published_(published), sink_(context.sink, result_) {}
  ExperimentResult execute();

 private:
  Context context_for(std::span<const PromptItem> prompts);
  LoadedModel load(DType dtype, const std::string& backend, const std::string& attention);
  std::vector<PromptItem> highest_kl() const;
  void put(const char* name, const ExperimentResult& part);
  void finish();
  template <class P>
  P with_arithmetic() const {
    P p;
    static_cast<ArithmeticParams&>(p) = params_;
    return p;
  }

  Context& context_;
  const PaperParams& params_;
  const Json& published_;
  ExperimentResult result_;
  PaperSink sink_;
  PaperParts parts_;
  std::map<std::tuple<DType, std::string, std::string>, LoadedModel> loaded_;
};

/// The dtypes of the run stay loaded: three experiments use them. FP32 and FP64 are loaded where they are needed.
LoadedModel Paper::load(DType dtype, const std::string& backend, const std::string& attention) {
  const auto key = std::tuple(dtype, backend, attention);
  if (const auto it = loaded_.find(key); it != loaded_.end()) return it->second;
  LoadedModel model = context_.load(dtype, backend, attention);
  if (std::find(params_.dtype.begin(), params_.dtype.end(), dtype) != params_.dtype.end()) loaded_.emplace(key, model);
  return model;
}

Context Paper::context_for(std::span<const PromptItem> prompts) {
  return {context_.config,
          prompts,
          [this](DType d, const std::string& b, const std::string& a) { return load(d, b, a); },
          context_.detokenize,
          sink_,
          context_.warnings,
          context_.progress,
          context_.planted};
}

/// By the run's first condition: what `drift` and `patch` would find by decoding once more.
std::vector<PromptItem> Paper::highest_kl() const {
  const auto kl = sink_.table.kl_by_prompt(0);
  std::vector<PromptItem> prompts;
  for (const PromptItem& p : context_.prompts)
    if (kl.contains(p.id)) prompts.push_back(p);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [&](const PromptItem& a, const PromptItem& b) { return kl.at(a.id) > kl.at(b.id); });
  if (std::ssize(prompts) > params_.samples) prompts.resize(static_cast<std::size_t>(params_.samples));
  return prompts;
}

void Paper::put(const char* name, const ExperimentResult& part) {
  for (const auto& [control, value] : part.controls.items())
    result_.controls[std::string(name) + "." + control] = value;
  if (std::string_view(name) == "run") {
    result_.conditions = part.conditions;
    result_.extra = part.extra;
  } else {
    result_.extra["experiments"][name] = {
        {"controls", part.controls}, {"conditions", part.conditions}, {"verdict", part.verdict}};
  }
  sink_.checkpoint(result_);
}

void Paper::finish() {
  result_.extra["questions"] = paper_questions(parts_);
  result_.extra["published"] = paper_comparison(published_, parts_);
  std::string invalid;
  for (const auto& [name, part] : {std::pair{"run", &parts_.run}, std::pair{"drift", &parts_.drift},
                                   std::pair{"falsify", &parts_.falsify}, std::pair{"patch", &parts_.patch}})
    if (part->verdict["kind"] == "invalid")
      invalid +=
          (invalid.empty() ? "" : "; ") + std::string(name) + ": " + part->verdict["sentence"].get<std::string>();
  if (invalid.empty())
    result_.verdict = parts_.run.verdict;
  else
    result_.verdict = {{"kind", "invalid"}, {"sentence", invalid}};
  result_.complete = true;
}

ExperimentResult Paper::execute() {
  Context all = context_for(context_.prompts);
  RunParams run;
  static_cast<ArithmeticParams&>(run) = params_;
  static_cast<DecodeParams&>(run) = params_;
  parts_.run = run_experiment(all, run);
  sink_.is_run = false;
  put("run", parts_.run);
  if (interrupted()) return std::move(result_);

  const std::vector<PromptItem> selected = highest_kl();
  if (selected.empty()) fail(ErrorKind::invalid_measurement, "paper: no prompt of the run has a finite KL");
  Context top = context_for(selected);
  auto drift = with_arithmetic<DriftParams>();
  drift.ignore_eos = params_.ignore_eos;
  parts_.drift = run_drift(top, drift);
  put("drift", parts_.drift);
  if (interrupted()) return std::move(result_);

  auto falsify = with_arithmetic<FalsifyParams>();
  static_cast<DecodeParams&>(falsify) = params_;
  falsify.samples = params_.samples;
  parts_.falsify = run_falsify(all, falsify, &sink_.table);
  put("falsify", parts_.falsify);
  if (interrupted()) return std::move(result_);

  parts_.boundary = analyse_boundary(sink_.table);
  put("boundary", parts_.boundary);

  auto patch = with_arithmetic<PatchParams>();
  patch.ignore_eos = params_.ignore_eos;
  patch.max_steps = std::min(params_.max_steps, params_.max_new_tokens);
  std::erase_if(patch.step, [&](std::int64_t s) { return s >= patch.max_steps; });
  parts_.patch = run_patch(top, patch);
  put("patch", parts_.patch);
  if (interrupted()) return std::move(result_);

  result_.extra["signatures"] = paper_signatures(all, params_, published_.value("signature", Json(nullptr)));
  if (interrupted()) return std::move(result_);
  finish();
  return std::move(result_);
}

}  // namespace

void validate(const PaperParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const DecodeParams&>(params));
  validate(SelectionParams{params.samples, params.max_steps, params.ignore_eos});
  if (params.max_new_tokens < 2)
    fail_usage("--max-new-tokens: {} is less than 2: the arms first differ at step 1", params.max_new_tokens);
}

ExperimentResult run_paper(Context& context, const PaperParams& params, const Json& published) {
  validate(params);
  return Paper(context, params, published).execute();
}

}  // namespace kvdiv
