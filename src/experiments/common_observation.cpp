#include "common_observation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kvdiv/base/error.h"
#include "kvdiv/decode/capture.h"

namespace kvdiv {
namespace {

constexpr std::array<std::pair<Site, std::string_view>, 25> kSiteNames{
    {{Site::embedding, "embedding"},
     {Site::attention_norm, "attention_norm"},
     {Site::query, "query"},
     {Site::key, "key"},
     {Site::value, "value"},
     {Site::query_rotary, "query_rotary"},
     {Site::key_rotary, "key_rotary"},
     {Site::keys, "keys"},
     {Site::values, "values"},
     {Site::scores, "scores"},
     {Site::capped_scores, "capped_scores"},
     {Site::weights, "weights"},
     {Site::mix, "mix"},
     {Site::attention_out, "attention_out"},
     {Site::attention_post_norm, "attention_post_norm"},
     {Site::attention_residual, "attention_residual"},
     {Site::mlp_norm, "mlp_norm"},
     {Site::gate, "gate"},
     {Site::up, "up"},
     {Site::mlp_product, "mlp_product"},
     {Site::mlp_out, "mlp_out"},
     {Site::mlp_post_norm, "mlp_post_norm"},
     {Site::block, "block"},
     {Site::final_norm, "final_norm"},
     {Site::logits, "logits"}}};

double norm(const at::Tensor& x) { return at::linalg_vector_norm(x).item().toDouble(); }

bool is_one_call_of_one_shape(const ObservedStep& s, Site site, std::int64_t layer) {
  const auto on = s.on.calls(site, layer), off = s.off.calls(site, layer);
  return on.size() == 1 && off.size() == 1 && on.front().sizes() == off.front().sizes();
}

/// The relative difference at a site; 0 where there is nothing to compare.
double difference_at(const ObservedStep& s, Site site, std::int64_t layer) {
  if (is_stored(site) || is_over_keys(site)) {
    if (s.step == 0 && is_over_keys(site))  // one mask a row: of chunks, only
                                            // what comes of it can be compared
      return is_one_call_of_one_shape(s, site, layer)
                 ? relative_difference(s.on.calls(site, layer).front(), s.off.calls(site, layer).front())
                 : 0.0;
    const std::int64_t dimension = is_stored(site) ? 2 : 3;
    const at::Tensor on = s.on.newest(site, layer), off = s.off.newest(site, layer);
    const std::int64_t n = std::min(on.size(dimension), off.size(dimension));
    return relative_difference(last_of(on, dimension, n), last_of(off, dimension, n));
  }
  // A decoder may leave out rows that nobody reads: then there are fewer than tokens, and the newest is what is left.
  const auto is_whole = [&](const ArmStep& arm) {
    const at::Tensor rows = arm.rows(site, layer);
    return rows.size(row_dimension(site)) == arm.n_rows();
  };
  if (s.step == 0 && is_whole(s.on) && is_whole(s.off))
    return relative_difference(s.on.rows(site, layer), s.off.rows(site, layer));
  return relative_difference(s.on.newest(site, layer), s.off.newest(site, layer));
}

}  // namespace

std::string_view name_of_site(Site site) {
  const auto it =
      std::find_if(kSiteNames.begin(), kSiteNames.end(), [&](const auto& entry) { return entry.first == site; });
  return it == kSiteNames.end() ? "?" : it->second;
}

at::Tensor ArmStep::visit(Site site, std::int64_t layer, const at::Tensor& tensor) {
  if (site == Site::embedding) n_rows_ += tensor.size(1);
  const bool is_whole = keep_ == Keep::all_rows || is_stored(site);
  const at::Tensor kept = is_whole ? tensor : last_row(site, tensor);
  seen_[{site, layer}].push_back(kept.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous());
  return tensor;
}

std::span<const at::Tensor> ArmStep::calls(Site site, std::int64_t layer) const {
  const auto it = seen_.find({site, layer});
  return it == seen_.end() ? std::span<const at::Tensor>{} : std::span<const at::Tensor>(it->second);
}

at::Tensor ArmStep::newest(Site site, std::int64_t layer) const {
  const auto all = calls(site, layer);
  if (all.empty()) fail(ErrorKind::internal, "observation: {} of layer {} was not seen", name_of_site(site), layer);
  return is_stored(site) ? all.back() : last_row(site, all.back());
}

at::Tensor ArmStep::rows(Site site, std::int64_t layer) const {
  const auto all = calls(site, layer);
  if (all.empty()) fail(ErrorKind::internal, "observation: {} of layer {} was not seen", name_of_site(site), layer);
  return all.size() == 1 ? all.front() : at::cat(std::vector<at::Tensor>(all.begin(), all.end()), row_dimension(site));
}

ObservedSteps observe(const Arms& arms, const Trajectory& text, std::span<const std::int64_t> steps) {
  const c10::InferenceMode inference;
  ObservedSteps out;
  if (steps.empty()) return out;
  KvCache cache = arms.decoder().make_cache(text.n_prompt() + text.n_steps());
  for (std::int64_t step = 0; step <= steps.back(); ++step) {
    const bool is_kept = std::find(steps.begin(), steps.end(), step) != steps.end();
    if (is_kept) out.push_back(std::make_unique<ObservedStep>(step, text.n_prompt()));
    arms.on(step == 0 ? std::span(text.prompt) : text.newest(step), cache, is_kept ? &out.back()->on : nullptr);
    // OFF keeps nothing, but a text begins with its prompt.
    if (is_kept || step == 0) arms.off(text.prefix(step), is_kept ? &out.back()->off : nullptr);
  }
  return out;
}

std::unique_ptr<ObservedStep> observe_chunked(const Arms& arms, const Trajectory& text, std::int64_t chunk) {
  const c10::InferenceMode inference;
  auto out = std::make_unique<ObservedStep>(0, text.n_prompt());
  KvCache cache = arms.decoder().make_cache(text.n_prompt() + text.n_steps());
  const std::span<const TokenId> prompt(text.prompt);
  const auto n = static_cast<std::size_t>(chunk);
  for (std::size_t at = 0; at < prompt.size(); at += n)
    arms.on(prompt.subspan(at, std::min(n, prompt.size() - at)), cache, &out->on);
  arms.off(prompt, &out->off);
  return out;
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  const double size = std::max(norm(a), norm(b));
  return size == 0.0 ? 0.0 : norm(at::sub(a, b)) / size;
}

at::Tensor last_of(const at::Tensor& x, std::int64_t dimension, std::int64_t n) {
  return x.narrow(dimension, x.size(dimension) - n, n);
}

std::optional<FirstDifference> first_difference(const ObservedStep& s, std::int64_t n_layers, double agreement) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto look = [&](Site site, std::int64_t layer) -> std::optional<FirstDifference> {
    const bool on = s.on.has(site, layer), off = s.off.has(site, layer);
    if (!on && !off) return std::nullopt;
    if (on != off) return FirstDifference{s.step, layer, site, kInfinite, on ? Arm::off : Arm::on};
    const double relative = difference_at(s, site, layer);
    if (relative <= agreement) return std::nullopt;
    return FirstDifference{s.step, layer, site, relative, std::nullopt};
  };
  if (const auto found = look(Site::embedding, 0)) return found;
  for (std::int64_t layer = 0; layer < n_layers; ++layer)
    for (const auto& [site, name] : kSiteNames)
      if (site != Site::embedding && site < Site::final_norm)
        if (const auto found = look(site, layer)) return found;
  if (const auto found = look(Site::final_norm, n_layers)) return found;
  return look(Site::logits, n_layers);
}

}  // namespace kvdiv
