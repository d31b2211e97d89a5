#include "kvdiv/experiments/falsify.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common_pairs.h"
#include "falsify_orders.h"
#include "falsify_precision.h"
#include "falsify_projection.h"
#include "falsify_verdict.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/experiments/falsify_dot.h"
#include "kvdiv/experiments/falsify_propagation.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/stats/bootstrap.h"
#include "kvdiv/stats/correlation.h"

namespace kvdiv {
namespace {

constexpr std::size_t kProjectionPrompts = 4;
constexpr std::size_t kOrderPrompts = 8;

class Falsify {
 public:
  Falsify(Context& context, const FalsifyParams& params, const PairTable* base)
      : context_(context), params_(params), base_(base != nullptr ? base : &own_) {}
  ExperimentResult execute();

 private:
  bool wants(FalsifyPart part) const {
    return std::find(params_.part.begin(), params_.part.end(), part) != params_.part.end();
  }
  bool needs_pairs() const { return wants(FalsifyPart::flip_kl) || wants(FalsifyPart::fp32); }
  void without_model();
  void with_model(DType dtype, const std::string& backend);
  void decode(const Decoder& decoder, DType dtype, const std::string& backend, Clock clock,
              const std::vector<const PromptItem*>& prompts, PairTable& table);
  void note(PairTable& table, DType dtype, const StepRecord& record, const StepView& view);
  void flip_kl();
  void wider(const std::string& backend);
  void orders();
  bool fits(DType dtype) const;
  std::vector<const PromptItem*> highest_kl(std::int32_t condition) const;
  std::vector<const PromptItem*> all_prompts() const;
  void add(Json condition);

  Context& context_;
  const FalsifyParams& params_;
  const PairTable* base_;
  PairTable own_;
  ExperimentResult result_;
  bool prefill_bit_equal_ = true;
  std::optional<bool> same_order_bit_equal_;
  struct {
    double sum = 0.0;
    std::int64_t n = 0;
  } fp32_metric_;  ///< |KL| of the FP32 rerun as an FP32 metric has it
};

void Falsify::add(Json condition) {
  result_.conditions.push_back(std::move(condition));
  context_.sink.checkpoint(result_);
}

void Falsify::without_model() {
  if (wants(FalsifyPart::dot)) {
    context_.progress.stage("dot products");
    Json j = {{"part", "dot"}};
    j.update(run_dot({}));
    add(std::move(j));
    context_.progress.end_stage();
  }
  if (wants(FalsifyPart::propagation) && !interrupted()) {
    context_.progress.stage("sequential attention steps");
    Json j = {{"part", "propagation"}};
    j.update(run_propagation({}));
    add(std::move(j));
    context_.progress.end_stage();
  }
}

std::vector<const PromptItem*> Falsify::all_prompts() const {
  std::vector<const PromptItem*> out;
  for (const PromptItem& p : context_.prompts) out.push_back(&p);
  return out;
}

/// The prompts of the highest mean same-prefix KL in a condition of the base.
std::vector<const PromptItem*> Falsify::highest_kl(std::int32_t condition) const {
  const auto kl = base_->kl_by_prompt(condition);
  std::vector<const PromptItem*> out;
  for (const PromptItem* p : all_prompts())
    if (kl.contains(p->id)) out.push_back(p);
  std::stable_sort(out.begin(), out.end(), [&](auto a, auto b) { return kl.at(a->id) > kl.at(b->id); });
  if (std::ssize(out) > params_.samples) out.resize(static_cast<std::size_t>(params_.samples));
  return out;
}

void Falsify::decode(const Decoder& decoder, DType dtype, const std::string& backend, Clock clock,
                     const std::vector<const PromptItem*>& prompts, PairTable& table) {
  for (const Strategy strategy : params_.strategy) {
    const Condition c{dtype, backend, strategy};
    context_.progress.stage(fmt::format("pairs, {}", c.name()));
    const auto seeds = seeds_of(params_, strategy);
    std::int64_t n_done = 0;
    for (const PromptItem* prompt : prompts)
      for (const std::int64_t seed : seeds) {
        if (interrupted()) return;
        const auto pair =
            decode_to_records(context_, decoder, params_, clock, c, *prompt, seed,
                              [&](const StepRecord& r, const StepView& view) { note(table, dtype, r, view); });
        table.add(pair.record);
        context_.progress.update({++n_done, std::ssize(prompts) * std::ssize(seeds), 0.0, 0.0});
      }
    context_.progress.end_stage();
  }
}

void Falsify::with_model(DType dtype, const std::string& backend) {
  LoadedModel model = context_.load(dtype, backend, params_.attention);
  result_.extra["cast"][std::string(name_of(dtype))] = to_json_value(model.cast);
  const Json head = {{"dtype", name_of(dtype)}, {"backend", backend}};
  if (wants(FalsifyPart::projection)) {
    const auto prompts = context_.prompts.first(std::min(kProjectionPrompts, context_.prompts.size()));
    Json j = {{"part", "projection"}, {"n_prompts", prompts.size()}};
    j.update(head);
    j["by_layer"] = projection_rows(model, *make_ops(backend, params_.attention, context_.device), prompts);
    add(std::move(j));
  }
  if (needs_pairs() && base_ == &own_) decode(model.decoder, dtype, backend, Clock::both, all_prompts(), own_);
  if (interrupted() || !wants(FalsifyPart::fp32)) return;
  auto prompts = all_prompts();
  prompts.resize(std::min(prompts.size(), kOrderPrompts));
  Json j = {{"part", "fp32"}, {"what", "own_order"}};
  j.update(head);
  j["own_order"] = own_order_control(model.decoder, params_, prompts);
  add(std::move(j));
}

void Falsify::note(PairTable& table, DType dtype, const StepRecord& record, const StepView& view) {
  table.add(record);
  if (record.step == 0) prefill_bit_equal_ = prefill_bit_equal_ && record.bit_equal;
  if (dtype != DType::float32 || !record.same_prefix) return;
  fp32_metric_.sum += std::abs(kl_in_fp32(view.logits_on(), view.logits_off()));
  ++fp32_metric_.n;
}

/// Correlation of the flip index with the mean KL: its own section of the paper; `boundary` goes into it further.
void Falsify::flip_kl() {
  Json rows = Json::array();
  for (std::size_t c = 0; c < base_->conditions().size(); ++c)
    for (const auto& [name, kl] :
         {std::pair{"same-prefix", &PairRow::kl_same_prefix}, std::pair{"free-running", &PairRow::kl_free_running}}) {
      std::vector<double> flips, kls;
      std::vector<std::int32_t> prompts;
      for (const PairRow* row : base_->of_condition(static_cast<std::int32_t>(c))) {
        if (!row->flip_index || !(row->*kl)) continue;
        flips.push_back(static_cast<double>(*row->flip_index));
        kls.push_back(*(row->*kl));
        prompts.push_back(row->prompt);
      }
      const auto flips_by_prompt = cluster_means(flips, prompts), kls_by_prompt = cluster_means(kls, prompts);
      rows.push_back({{"condition", base_->conditions()[c]},
                      {"kl", name},
                      {"n_flipped_pairs", flips.size()},
                      {"n_prompts", flips_by_prompt.size()},
                      {"pearson_by_prompt", to_json_value(pearson(flips_by_prompt, kls_by_prompt))},
                      {"spearman_by_prompt", to_json_value(spearman(flips_by_prompt, kls_by_prompt))},
                      {"pearson_as_published", to_json_value(pearson(flips, kls))}});
    }
  add({{"part", "flip-kl"}, {"flip_kl", std::move(rows)}});
}

bool Falsify::fits(DType dtype) const {
  const auto need =
      memory_need(context_.config, dtype, longest_prompt(context_.prompts) + params_.max_new_tokens).total();
  if (need <= available_memory_bytes(context_.device)) return true;
  context_.warnings.add(WarningCode::fp64_check_skipped, fmt::format("the rerun in {} needs {}", name_of(dtype),
                                                                     human_bytes(static_cast<double>(need))));
  return false;
}

/// The same pairs in FP32 and FP64, each along the text that ON chooses in that dtype, as the paper reran them.
void Falsify::wider(const std::string& backend) {
  PairTable table;
  const auto prompts = highest_kl(0);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const bool is_base = std::find(params_.dtype.begin(), params_.dtype.end(), dtype) != params_.dtype.end();
    if (is_base || !fits(dtype)) continue;
    const LoadedModel model = context_.load(dtype, backend, params_.attention);
    decode(model.decoder, dtype, backend, Clock::forced, prompts, table);
    if (interrupted()) return;
  }
  Json rows = Json::array();
  for (std::size_t b = 0; b < base_->conditions().size(); ++b) {
    const std::string& name = base_->conditions()[b];
    if (name.find("/" + backend + "/") == std::string::npos) continue;
    const PrecisionResult base = precision_of(*base_, static_cast<std::int32_t>(b), prompts);
    rows.push_back(precision_row(base, base));
    const std::string arithmetic = name.substr(name.find('/'));
    for (std::size_t c = 0; c < table.conditions().size(); ++c)
      if (table.conditions()[c].ends_with(arithmetic))
        rows.push_back(precision_row(precision_of(table, static_cast<std::int32_t>(c), prompts), base));
  }
  Json j = {{"part", "fp32"}, {"what", "rerun"}, {"n_prompts", prompts.size()}, {"rerun", std::move(rows)}};
  if (fp32_metric_.n > 0)
    j["fp32_metric"] = {{"n_steps", fp32_metric_.n},
                        {"mean_abs_kl_nats", fp32_metric_.sum / static_cast<double>(fp32_metric_.n)}};
  add(std::move(j));
}

void Falsify::orders() {
  const OrderTable table = order_table(context_, params_, [this](DType dtype) { return fits(dtype); });
  if (interrupted()) return;
  prefill_bit_equal_ = prefill_bit_equal_ && table.prefill_bit_equal;
  same_order_bit_equal_ = table.same_order_bit_equal;
  add({{"part", "orders"}, {"orders", table.rows}});
}

ExperimentResult Falsify::execute() {
  without_model();
  const bool with_checkpoint = needs_pairs() || wants(FalsifyPart::projection);
  for (const DType dtype : params_.dtype)
    for (const std::string& backend : params_.backend)
      if (with_checkpoint && !interrupted()) with_model(dtype, backend);
  if (wants(FalsifyPart::flip_kl) && !interrupted()) flip_kl();
  for (const std::string& backend : params_.backend)
    if (wants(FalsifyPart::fp32) && !interrupted()) wider(backend);
  if (wants(FalsifyPart::orders) && !interrupted()) orders();
  if (interrupted()) return std::move(result_);
  result_.controls = Json::object();
  if (needs_pairs() || same_order_bit_equal_) result_.controls["prefill_bit_equal"] = prefill_bit_equal_;
  if (same_order_bit_equal_) result_.controls["same_order_bit_equal"] = *same_order_bit_equal_;
  result_.verdict = falsify_verdict(result_.conditions, prefill_bit_equal_);
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

bool decodes_pairs(const FalsifyParams& params) {
  return std::any_of(params.part.begin(), params.part.end(), [](FalsifyPart part) {
    return part == FalsifyPart::flip_kl || part == FalsifyPart::fp32 || part == FalsifyPart::orders;
  });
}

void validate(const FalsifyParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  validate(static_cast<const DecodeParams&>(params));
  if (params.part.empty()) fail_usage("--part: the list is empty");
  if (params.samples < 1) fail_usage("--samples: {} is less than 1", params.samples);
}

ExperimentResult run_falsify(Context& context, const FalsifyParams& params, const PairTable* base) {
  validate(params);
  warn_few_prompts(context);
  return Falsify(context, params, base).execute();
}

}  // namespace kvdiv
