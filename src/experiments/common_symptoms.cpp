#include "common_symptoms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace kvdiv {
namespace {

using Found = std::optional<Finding>;

FaultSpec spec_of(Fault fault) {
  FaultSpec spec;
  spec.fault = fault;
  return spec;
}

bool is_first_at(const Evidence& e, std::initializer_list<Site> sites) {
  return e.first && std::find(sites.begin(), sites.end(), e.first->site) != sites.end();
}

std::string tokens(std::int64_t n) { return fmt::format("{} token{}", n, n == 1 ? "" : "s"); }

/// Whether both arms computed as many tokens as they must: else the first difference says nothing.
bool rows_are_right(const Evidence& e) {
  return std::all_of(e.rows.begin(), e.rows.end(),
                     [](const RowCounts& r) { return r.on == r.expected_on && r.off == r.expected_off; });
}

// ---- how many tokens an arm computes ----

/// Whether OFF computes so many tokens at every step ≥ 1 that was looked at, and ON what it must; two such steps at
/// least tell the newest token from all new ones.
template <class Expected>
bool off_computes(const Evidence& e, Expected expected) {
  std::int64_t n_steps = 0;
  for (const RowCounts& r : e.rows) {
    if (r.on != r.expected_on) return false;
    if (r.step == 0) continue;
    if (r.off != expected(r) || r.off == r.expected_off) return false;
    ++n_steps;
  }
  return n_steps >= 2;
}

Found newest_token_only(const Evidence& e) {
  if (!off_computes(e, [](const RowCounts&) { return 1; })) return std::nullopt;
  return Finding{fmt::format("OFF computes 1 token at every step behind the prompt, where the prefix has {} and more",
                             e.n_prompt + 1),
                 spec_of(Fault::newest_token_only)};
}

Found prompt_dropped(const Evidence& e) {
  if (!off_computes(e, [](const RowCounts& r) { return r.step; })) return std::nullopt;
  return Finding{fmt::format("OFF computes the new tokens alone: {} fewer than the prefix, the prompt's length",
                             tokens(e.n_prompt)),
                 spec_of(Fault::prompt_dropped)};
}

Found doubled_bos(const Evidence& e) {
  if (!e.first_row_twice_on) return std::nullopt;
  return Finding{fmt::format("ON embeds {} of a prompt of {}: its first one twice, then the prompt",
                             tokens(e.n_prompt + 1), e.n_prompt),
                 spec_of(Fault::doubled_bos)};
}

Found last_position_wrong(const Evidence& e) {
  if (!e.off_late_by || !rows_are_right(e)) return std::nullopt;
  FaultSpec spec = spec_of(Fault::last_position_wrong);
  spec.shift = *e.off_late_by;
  return Finding{fmt::format("OFF's logits are those that ON had {} step{} before: of an earlier position", spec.shift,
                             spec.shift == 1 ? "" : "s"),
                 spec};
}

// ---- where a token is, and what it sees ----

/// By how much ON's newest token is misplaced where OFF's is right.
std::optional<std::int64_t> on_shift(const Evidence& e) {
  if (!rows_are_right(e) || !e.rotary.on || *e.rotary.on == 0 || e.rotary.off != 0) return std::nullopt;
  return e.rotary.on;
}

Found rotary_off_by_one(const Evidence& e) {
  const auto shift = on_shift(e);
  if (!shift || *shift == -e.n_prompt) return std::nullopt;
  FaultSpec spec = spec_of(Fault::rotary_off_by_one);
  spec.shift = *shift;
  return Finding{fmt::format("ON rotates its newest token by a position that is {:+} off its own", *shift), spec};
}

Found positions_restart(const Evidence& e) {
  const auto shift = on_shift(e);
  if (!shift || *shift != -e.n_prompt) return std::nullopt;
  return Finding{fmt::format("ON rotates its newest token by a position that is {} too low, the prompt's length: it "
                             "counts from 0 again behind the prompt",
                             e.n_prompt),
                 spec_of(Fault::positions_restart)};
}

Found mask_missing_in_chunk(const Evidence& e) {
  if (!(e.future_on > 0.0) || e.future_off > 0.0) return std::nullopt;
  FaultSpec spec = spec_of(Fault::mask_missing_in_chunk);
  if (e.in_chunks) spec.chunk = 0;
  return Finding{fmt::format("in ON tokens of the prompt attend to later ones, with a weight of up to {:.2g}{}",
                             e.future_on, e.in_chunks ? ", where it is fed in chunks" : ""),
                 spec};
}

/// Keys that ON sees and must not (positive), or does not see and must, at the lower edge of each layer with a window;
/// none if OFF breaks the rule too, or if the arms part before attention weights are made.
struct Edges {
  std::vector<std::int64_t> local;  ///< layers whose window hides something
  std::int64_t n_open = 0;          ///< of these, in which ON sees everything
  std::int64_t n_global_cut = 0;    ///< layers that must see everything and do not
  std::int64_t n_global_right = 0;
};
std::optional<Edges> edges(const Evidence& e) {
  if (!is_first_at(e, {Site::weights}) || !rows_are_right(e)) return std::nullopt;
  Edges out;
  for (const LowestKey& k : e.lowest) {
    if (k.off != k.rule) return std::nullopt;
    if (k.rule == 0) {
      (k.on > 0 ? out.n_global_cut : out.n_global_right) += 1;
      continue;
    }
    out.local.push_back(k.rule - k.on);
    out.n_open += k.on == 0;
  }
  return out;
}

Found window_off_by_one(const Evidence& e) {
  const auto found = edges(e);
  if (!found || found->local.empty() || found->n_global_cut > 0 || found->n_open > 0) return std::nullopt;
  const std::int64_t first = found->local.front();
  const bool same = std::all_of(found->local.begin(), found->local.end(), [&](std::int64_t n) { return n == first; });
  if (!same || first == 0) return std::nullopt;
  FaultSpec spec = spec_of(Fault::window_off_by_one);
  spec.shift = first;
  return Finding{fmt::format("ON's newest token sees {} key{} {} than the window has, at its lower edge",
                             std::abs(first), std::abs(first) == 1 ? "" : "s", first > 0 ? "more" : "fewer"),
                 spec};
}

Found window_ignored(const Evidence& e) {
  const auto found = edges(e);
  if (!found || found->local.empty() || found->n_global_cut > 0 || found->n_open != std::ssize(found->local))
    return std::nullopt;
  return Finding{"ON's newest token sees every key in layers that have a window", spec_of(Fault::window_ignored)};
}

Found layers_swapped(const Evidence& e) {
  const auto found = edges(e);
  if (!found || found->local.empty() || found->n_open != std::ssize(found->local) || found->n_global_cut == 0 ||
      found->n_global_right > 0)
    return std::nullopt;
  return Finding{"ON sees every key in the layers with a window, and a window's keys in the layers without",
                 spec_of(Fault::layers_swapped)};
}

// ---- what the cache holds ----

/// K and V that differ though both arms project and rotate alike.
const StoredDifference* stored(const Evidence& e) {
  const bool is_there = is_first_at(e, {Site::keys, Site::values}) && rows_are_right(e) && e.stored.has_value();
  return is_there && !e.stored->positions.empty() ? &*e.stored : nullptr;
}

/// The layer of a fault that is in one layer only: in layer 1 it may be in all of them.
std::optional<std::int64_t> layer_of(const StoredDifference& s) {
  return s.layer == 0 ? std::nullopt : std::optional(s.layer);
}

bool is_all_copies(const StoredDifference& s) { return s.copy_of.size() == s.positions.size(); }

/// Numbers on a grid that OFF's are not on, coarser than FP32's by a bit or more than the arithmetic's by ten.
bool is_on_grid(const StoredDifference& s) { return s.bits_on <= 24 && s.bits_off >= s.bits_on + 10; }

Found stale_slot(const Evidence& e) {
  const StoredDifference* s = stored(e);
  if (s == nullptr || !s->heads.empty() || !is_all_copies(*s) || s->positions.size() != 1) return std::nullopt;
  const std::int64_t position = s->positions.front(), source = s->copy_of.at(position);
  FaultSpec spec = spec_of(Fault::stale_slot);
  spec.slot = position;
  spec.distance = position - source;
  spec.layer = layer_of(*s);
  return Finding{fmt::format("ON's cache holds the K and V of position {} at position {}", source, position), spec};
}

Found kv_heads_mapped_wrongly(const Evidence& e) {
  const StoredDifference* s = stored(e);
  if (s == nullptr || s->heads.empty()) return std::nullopt;
  FaultSpec spec = spec_of(Fault::kv_heads_mapped_wrongly);
  spec.shift = s->heads.front();
  spec.layer = layer_of(*s);
  return Finding{fmt::format("in ON the KV heads 0, 1, … are OFF's heads {}", fmt::join(s->heads, ", ")), spec};
}

Found cache_lower_dtype(const Evidence& e) {
  const StoredDifference* s = stored(e);
  if (s == nullptr || !s->heads.empty() || is_all_copies(*s) || !is_on_grid(*s)) return std::nullopt;
  FaultSpec spec = spec_of(Fault::cache_lower_dtype);
  spec.mantissa_bits = s->bits_on;
  spec.layer = layer_of(*s);
  return Finding{
      fmt::format(
          "what ON's cache gives back has {} mantissa bits, where what was written has {}: relative error {:.2g}",
          s->bits_on, s->bits_off, s->rms),
      spec};
}

Found noise(const Evidence& e) {
  const StoredDifference* s = stored(e);
  if (s == nullptr || !s->heads.empty() || is_all_copies(*s) || is_on_grid(*s) || s->n_elements < 64)
    return std::nullopt;
  // Five standard errors each: of a mean, and of a correlation of numbers that are independent.
  const double error = 1.0 / std::sqrt(static_cast<double>(s->n_elements));
  if (std::fabs(s->mean) > 5.0 * error * s->rms || std::fabs(s->neighbours) > 5.0 * error) return std::nullopt;
  FaultSpec spec = spec_of(Fault::noise);
  spec.size = s->rms;
  spec.layer = layer_of(*s);
  return Finding{
      fmt::format(
          "K and V in ON's cache are off by {:.2g} of their size at {} of {} positions, with no mean and no pattern",
          s->rms, s->positions.size(), s->n_compared),
      spec};
}

// ---- what a layer computes ----

Found cap_dropped(const Evidence& e) {
  if (!is_first_at(e, {Site::capped_scores}) || e.first->missing_in != Arm::on || !rows_are_right(e))
    return std::nullopt;
  return Finding{"ON's attention scores are OFF's, and are not capped", spec_of(Fault::cap_dropped)};
}

Found eps_changed(const Evidence& e) {
  if (!e.norm_eps.on || !e.norm_eps.off || !rows_are_right(e)) return std::nullopt;
  const auto is_config = [&](double eps) { return std::fabs(eps - e.eps) <= 1e-3 * e.eps; };
  if (is_config(*e.norm_eps.on) || !is_config(*e.norm_eps.off)) return std::nullopt;
  FaultSpec spec = spec_of(Fault::eps_changed);
  spec.factor = *e.norm_eps.on / e.eps;
  return Finding{fmt::format("ON's RMSNorm acts as with ε = {:.3g}, the model has {:.3g}", *e.norm_eps.on, e.eps),
                 spec};
}

Found norm_order_changed(const Evidence& e) {
  if (e.in_float64 || !e.norm_order || e.norm_order->n < 64) return std::nullopt;
  if (e.norm_order->on < 0.5 || e.norm_order->off > 0.05) return std::nullopt;
  return Finding{
      fmt::format(
          "ON's RMSNorm rounds on the other side of its weight: {:.0f} % of the {} numbers that tell the two apart",
          100.0 * e.norm_order->on, e.norm_order->n),
      spec_of(Fault::norm_order_changed)};
}

constexpr std::array<Symptom, 17> kSymptoms{{
    {Fault::newest_token_only, "the arm without a cache gets its newest token alone", newest_token_only},
    {Fault::prompt_dropped, "the arm without a cache loses the prompt behind step 0", prompt_dropped},
    {Fault::doubled_bos, "the prompt begins with its first token twice", doubled_bos},
    {Fault::last_position_wrong, "logits are read at another position than the last", last_position_wrong},
    {Fault::mask_missing_in_chunk, "a prompt in chunks without a causal mask inside a chunk", mask_missing_in_chunk},
    {Fault::rotary_off_by_one, "positions of new tokens are shifted", rotary_off_by_one},
    {Fault::positions_restart, "positions of new tokens do not go on from the prompt", positions_restart},
    {Fault::window_off_by_one, "a sliding window of another length", window_off_by_one},
    {Fault::window_ignored, "a sliding window that is not applied", window_ignored},
    {Fault::layers_swapped, "layers with and without a window are taken for each other", layers_swapped},
    {Fault::kv_heads_mapped_wrongly, "query heads attend to another head's keys and values", kv_heads_mapped_wrongly},
    {Fault::stale_slot, "a slot of the cache was not overwritten", stale_slot},
    {Fault::cache_lower_dtype, "the cache stores fewer bits than the arithmetic has", cache_lower_dtype},
    {Fault::noise, "what the cache gives back is not quite what was put in", noise},
    {Fault::cap_dropped, "the soft-cap of attention scores is left out", cap_dropped},
    {Fault::eps_changed, "RMSNorm with another ε", eps_changed},
    {Fault::norm_order_changed, "RMSNorm rounds at another place", norm_order_changed},
}};

}  // namespace

std::span<const Symptom> symptoms() { return kSymptoms; }

std::vector<Finding> matching_symptoms(const Evidence& evidence) {
  std::vector<Finding> out;
  for (const Symptom& symptom : kSymptoms)
    if (auto found = symptom.look(evidence)) out.push_back(std::move(*found));
  return out;
}

}  // namespace kvdiv
