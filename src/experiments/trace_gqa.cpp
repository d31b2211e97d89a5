#include "trace_gqa.h"

#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/stats/bootstrap.h"

namespace kvdiv {
namespace {

constexpr std::uint64_t kNoiseSeed = 0x7472616365ull;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double sum_of_squares(const std::vector<double>& v) {
  double sum = 0.0;
  for (const double x : v) sum += x * x;
  return sum;
}

/// Σ (change − its mean)²: what a constant does to all logits changes no probability.
double centred_change(const std::vector<double>& noisy, const std::vector<double>& clean) {
  double mean = 0.0;
  for (std::size_t i = 0; i < clean.size(); ++i) mean += (noisy[i] - clean[i]) / static_cast<double>(clean.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < clean.size(); ++i) sum += std::pow(noisy[i] - clean[i] - mean, 2);
  return sum;
}

double max_relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

/// One value a prompt; NaN: not defined for it.
struct Values {
  std::vector<double> of_prompts;
  void add(std::optional<double> value) { of_prompts.push_back(value.value_or(kNaN)); }
  Json interval() const { return to_json_value(mean_interval_bca(of_prompts, own_clusters(of_prompts.size()))); }
};

struct Effects {
  Values amplification, shared, other;
};

/// What attention of the newest position needs: K and V of all positions, one query.
struct CleanLayer {
  at::Tensor query_BHTD, keys_BGSD, values_BGSD, mix_BHTD;
  Matrix output_weight;
  std::int64_t first_key = 0;
};

class GqaRun {
 public:
  GqaRun(Context& context, const TraceParams& params, Decoder& base)
      : context_(context),
        params_(params),
        base_(base),
        ops_(make_ops(params.backend.front(), params.attention, context.device)) {}
  GqaResult execute();

 private:
  void variant(const GqaVariant& v);
  std::optional<double> over_all_layers(const Decoder& shared, const Decoder& copies, const PromptItem& prompt);
  void layer_by_layer(Decoder& shared, const PromptItem& prompt, std::int64_t R);
  void layer(const CleanLayer& clean, const PromptItem& prompt, std::int64_t R, std::int64_t layer);
  std::vector<CleanLayer> clean_layers(Decoder& shared, const PromptItem& prompt) const;
  at::Tensor attend(const CleanLayer& clean, const at::Tensor& keys, const at::Tensor& values) const;
  KvNoise noise(const PromptItem& prompt, std::int64_t draw) const {
    return {params_.gqa_size, kNoiseSeed + static_cast<std::uint64_t>(prompt.index), static_cast<std::uint32_t>(draw)};
  }
  std::span<const PromptItem> prompts() const {
    return context_.prompts.first(std::min(context_.prompts.size(), static_cast<std::size_t>(params_.gqa_prompts)));
  }

  Context& context_;
  const TraceParams& params_;
  Decoder& base_;
  std::shared_ptr<const Ops> ops_;
  GqaResult result_;
  std::map<std::int64_t, Effects> layers_;  ///< of the variant in hand
  std::int64_t n_done_ = 0;
};

/// Noise on K and V of every layer and position, seen in the last position's logits.
std::optional<double> GqaRun::over_all_layers(const Decoder& shared, const Decoder& copies, const PromptItem& prompt) {
  const auto clean = host_logits(shared.forward(prompt.ids, nullptr));
  const auto clean_copies = host_logits(copies.forward(prompt.ids, nullptr));
  result_.copies_max_rel = std::max(result_.copies_max_rel, max_relative(clean_copies, clean));
  double together = 0.0, apart = 0.0;
  for (std::int64_t draw = 0; draw < params_.gqa_draws; ++draw) {
    const KvNoise n = noise(prompt, draw);
    EditTap tap([](Site site, std::int64_t) { return site == Site::key_rotary || site == Site::value; },
                [&n](Site site, std::int64_t l, const at::Tensor& x) { return n.apply(x, l, site == Site::value); });
    together += centred_change(host_logits(shared.forward(prompt.ids, nullptr, &tap)), clean);
    apart += centred_change(host_logits(copies.forward(prompt.ids, nullptr, &tap)), clean_copies);
  }
  return apart > 0.0 ? std::optional(std::sqrt(together / apart)) : std::nullopt;
}

std::vector<CleanLayer> GqaRun::clean_layers(Decoder& shared, const PromptItem& prompt) const {
  CaptureTap tap([](Site site, std::int64_t) {
    return site == Site::query_rotary || site == Site::key_rotary || site == Site::value || site == Site::mix;
  });
  shared.forward(prompt.ids, nullptr, &tap);
  std::map<std::string, Matrix> by_name;
  for (const NamedWeight& w : shared.weights()) by_name[w.name] = w.matrix();
  std::vector<CleanLayer> out;
  const std::int64_t S = std::ssize(prompt.ids);
  for (std::int64_t l = 0; l < shared.config().sizes.n_layers; ++l) {
    const auto window = shared.config().traits.windows[static_cast<std::size_t>(l)];
    out.push_back({last_row(Site::query_rotary, tap.at(Site::query_rotary, l)), tap.at(Site::key_rotary, l),
                   tap.at(Site::value, l), last_row(Site::mix, tap.at(Site::mix, l)),
                   by_name.at(fmt::format("model.layers.{}.self_attn.o_proj.weight", l)),
                   window ? std::max<std::int64_t>(0, S - *window) : 0});
  }
  return out;
}

/// Attention of the newest position, [1,1,H·D]: it sees every key from the first of its window on.
at::Tensor GqaRun::attend(const CleanLayer& c, const at::Tensor& keys, const at::Tensor& values) const {
  const std::int64_t n = keys.size(2) - c.first_key;
  const Traits& traits = base_.config().traits;
  return ops_->attention(c.query_BHTD, keys.narrow(2, c.first_key, n), values.narrow(2, c.first_key, n), {},
                         {traits.query_scale, traits.attention_cap, c.first_key}, {});
}

/// Noise in one layer, seen at its own attention: nothing is inherited.
void GqaRun::layer(const CleanLayer& c, const PromptItem& prompt, std::int64_t R, std::int64_t l) {
  const std::int64_t H = base_.config().sizes.n_heads;
  const auto copies = [R](const at::Tensor& x_BGSD) { return x_BGSD.repeat_interleave(R, 1); };
  const at::Tensor clean = attend(c, c.keys_BGSD, c.values_BGSD);
  const double alone = max_relative(host_logits(clean.reshape({-1})), host_logits(c.mix_BHTD.reshape({-1})));
  result_.attention_max_rel = std::max(result_.attention_max_rel, alone);
  at::Tensor gram_HH = at::zeros({H, H}, at::TensorOptions().dtype(at::kDouble));
  double together = 0.0, apart = 0.0;
  for (std::int64_t draw = 0; draw < params_.gqa_draws; ++draw) {
    const KvNoise n = noise(prompt, draw);
    const at::Tensor shared =
        at::sub(attend(c, n.apply(c.keys_BGSD, l, false), n.apply(c.values_BGSD, l, true)), clean);
    const at::Tensor own =
        at::sub(attend(c, n.apply(copies(c.keys_BGSD), l, false), n.apply(copies(c.values_BGSD), l, true)), clean);
    const at::Tensor error_HD = shared.to(at::kCPU, at::kDouble).view({H, -1});
    gram_HH = at::add(gram_HH, at::matmul(error_HD, error_HD.t()));
    together += sum_of_squares(host_logits(ops_->linear(shared, c.output_weight).reshape({-1})));
    apart += sum_of_squares(host_logits(ops_->linear(own, c.output_weight).reshape({-1})));
  }
  const HeadCorrelation heads = correlate_heads(gram_HH, R);
  Effects& effects = layers_[l];
  effects.amplification.add(apart > 0.0 ? std::optional(std::sqrt(together / apart)) : std::nullopt);
  effects.shared.add(heads.shared);
  effects.other.add(heads.other);
}

void GqaRun::layer_by_layer(Decoder& shared, const PromptItem& prompt, std::int64_t R) {
  const auto clean = clean_layers(shared, prompt);
  for (std::size_t l = 0; l < clean.size(); ++l) layer(clean[l], prompt, R, static_cast<std::int64_t>(l));
}

/// Per prompt the mean over layers.
Values over_layers(const std::map<std::int64_t, Effects>& layers, Values Effects::*member) {
  Values out;
  for (std::size_t i = 0; i < (layers.begin()->second.*member).of_prompts.size(); ++i) {
    double sum = 0.0, n = 0.0;
    for (const auto& [layer, effects] : layers) {
      const double value = (effects.*member).of_prompts[i];
      if (std::isfinite(value)) sum += value, n += 1.0;
    }
    out.add(n > 0.0 ? std::optional(sum / n) : std::nullopt);
  }
  return out;
}

void GqaRun::variant(const GqaVariant& v) {
  Decoder shared = make_variant(base_, ops_, v.R, false);
  const Decoder copies = make_variant(base_, ops_, v.R, true);
  layers_.clear();
  Values amplification;
  for (const PromptItem& prompt : prompts()) {
    if (interrupted()) return;
    amplification.add(over_all_layers(shared, copies, prompt));
    layer_by_layer(shared, prompt, v.R);
    context_.progress.update({++n_done_, std::ssize(prompts()) * std::ssize(gqa_variants(base_.config().sizes)), 0, 0});
  }
  result_.rows.push_back({{"R", v.R},
                          {"n_kv_heads", base_.config().sizes.n_heads / v.R},
                          {"source", v.source},
                          {"amplification", amplification.interval()},
                          {"amplification_one_layer", over_layers(layers_, &Effects::amplification).interval()},
                          {"sqrt_r", std::sqrt(static_cast<double>(v.R))},
                          {"corr_shared", over_layers(layers_, &Effects::shared).interval()},
                          {"corr_other", over_layers(layers_, &Effects::other).interval()}});
  for (const auto& [l, effects] : layers_)
    result_.by_layer.push_back({{"R", v.R},
                                {"layer", l + 1},
                                {"amplification_one_layer", effects.amplification.interval()},
                                {"corr_shared", effects.shared.interval()},
                                {"corr_other", effects.other.interval()}});
}

GqaResult GqaRun::execute() {
  const c10::InferenceMode inference;
  context_.progress.stage("trace, noise on shared and own keys and values");
  for (const GqaVariant& v : gqa_variants(base_.config().sizes)) {
    variant(v);
    if (interrupted()) return std::move(result_);
  }
  context_.progress.end_stage();
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

GqaResult run_gqa(Context& context, const TraceParams& params, Decoder& base) {
  return GqaRun(context, params, base).execute();
}

}  // namespace kvdiv
