#include "trace_births.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <cstring>

#include "kvdiv/stats/metrics.h"
#include "kvdiv/stats/states.h"

namespace kvdiv {
namespace {

bool bits_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// The positions of [1,G,S,D] that were there before this step.
at::Tensor before_newest(const at::Tensor& x_BGSD) { return x_BGSD.narrow(2, 0, x_BGSD.size(2) - 1); }

bool same_logits(const at::Tensor& logits_V, const std::vector<double>& expected) {
  return compare_logits(host_logits(logits_V), expected).bit_equal;
}

CaptureTap capture_all() {
  return CaptureTap([](Site, std::int64_t) { return true; }, CaptureTap::Rows::last);
}

void add_attention(std::vector<Operation>& ops, const ModelConfig& config, bool eager, std::int64_t l) {
  const auto at = [l](Site site) { return SitePlace{site, l}; };
  ops.push_back({"norm", at(Site::attention_norm), {l == 0 ? at(Site::embedding) : SitePlace{Site::block, l - 1}}});
  ops.push_back({"q", at(Site::query), {at(Site::attention_norm)}});
  ops.push_back({"k", at(Site::key), {at(Site::attention_norm)}});
  ops.push_back({"v", at(Site::value), {at(Site::attention_norm)}});
  ops.push_back({"rotary_q", at(Site::query_rotary), {at(Site::query)}});
  ops.push_back({"rotary_k", at(Site::key_rotary), {at(Site::key)}});
  ops.push_back({"stored_keys", at(Site::keys), {}, true});
  ops.push_back({"stored_values", at(Site::values), {}, true});
  if (!eager) {
    ops.push_back({"attention", at(Site::mix), {at(Site::query_rotary), at(Site::keys), at(Site::values)}});
  } else {
    const bool cap = config.traits.attention_cap.has_value();
    ops.push_back({"scores", at(Site::scores), {at(Site::query_rotary), at(Site::keys)}});
    if (cap) ops.push_back({"cap", at(Site::capped_scores), {at(Site::scores)}});
    ops.push_back({"softmax", at(Site::weights), {at(cap ? Site::capped_scores : Site::scores)}});
    ops.push_back({"mix", at(Site::mix), {at(Site::weights), at(Site::values)}});
  }
  ops.push_back({"output_projection", at(Site::attention_out), {at(Site::mix)}});
}

void add_block(std::vector<Operation>& ops, const ModelConfig& config, bool eager, std::int64_t l) {
  const auto at = [l](Site site) { return SitePlace{site, l}; };
  const bool sandwich = config.traits.sandwich_norms;
  const SitePlace input = l == 0 ? at(Site::embedding) : SitePlace{Site::block, l - 1};
  add_attention(ops, config, eager, l);
  if (sandwich) ops.push_back({"attention_post_norm", at(Site::attention_post_norm), {at(Site::attention_out)}});
  const Site attention = sandwich ? Site::attention_post_norm : Site::attention_out;
  ops.push_back({"attention_residual", at(Site::attention_residual), {input, at(attention)}});
  ops.push_back({"mlp_norm", at(Site::mlp_norm), {at(Site::attention_residual)}});
  ops.push_back({"gate", at(Site::gate), {at(Site::mlp_norm)}});
  ops.push_back({"up", at(Site::up), {at(Site::mlp_norm)}});
  ops.push_back({"product", at(Site::mlp_product), {at(Site::gate), at(Site::up)}});
  ops.push_back({"down", at(Site::mlp_out), {at(Site::mlp_product)}});
  if (sandwich) ops.push_back({"mlp_post_norm", at(Site::mlp_post_norm), {at(Site::mlp_out)}});
  const Site mlp = sandwich ? Site::mlp_post_norm : Site::mlp_out;
  ops.push_back({"residual", at(Site::block), {at(Site::attention_residual), at(mlp)}});
}

}  // namespace

std::vector<Operation> operations_of(const ModelConfig& config, bool eager) {
  std::vector<Operation> ops;
  const std::int64_t L = config.sizes.n_layers;
  for (std::int64_t l = 0; l < L; ++l) add_block(ops, config, eager, l);
  ops.push_back({"final_norm", {Site::final_norm, L}, {{Site::block, L - 1}}});
  ops.push_back({"head", {Site::logits, L}, {{Site::final_norm, L}}});
  return ops;
}

at::Tensor aligned(Site site, const at::Tensor& off, const at::Tensor& on) {
  const bool over_keys = site == Site::scores || site == Site::capped_scores || site == Site::weights;
  const std::int64_t d = over_keys ? 3 : 2;
  if (!over_keys && site != Site::keys && site != Site::values) return off;
  return off.narrow(d, off.size(d) - on.size(d), on.size(d));
}

TensorDifference difference_of(const at::Tensor& on, const at::Tensor& off) {
  if (bits_equal(on, off)) return {true, 0.0, 0.0};
  const StateDistance d = compare_states(host_logits(on.reshape({-1})), host_logits(off.reshape({-1})));
  return {false, d.rel_l2, d.max_abs};
}

TracedStep::TracedStep(const Arms& arms, const Trajectory& t, std::int64_t step)
    : arms_(arms), t_(t), step_(step), on_(capture_all()), off_(capture_all()) {
  const auto i = static_cast<std::size_t>(step);
  KvCache cache = t.cache_before(step);
  same_bits_ = same_logits(arms.on(t.newest(step), cache, &on_), t.logits_on[i]) &&
               same_logits(arms.off(t.prefix(step), &off_), t.logits_off[i]);
  alone_ = isolated();
}

TracedStep::Differences TracedStep::isolated() {
  Differences out;
  EditTap tap([](Site, std::int64_t) { return true; },
              [&](Site site, std::int64_t layer, const at::Tensor& on) {
                const at::Tensor off = aligned(site, off_.at(site, layer), on);
                if (site != Site::keys && site != Site::values) {
                  out[{site, layer, false}] = difference_of(on, off);
                  return at::empty_like(on).copy_(off);  // laid out as ON's: strides can decide which kernel runs
                }
                out[{site, layer, true}] = difference_of(before_newest(on), before_newest(off));
                return on.copy_(off);  // into this run's own copy of the cache, whose view stays what it was
              });
  KvCache cache = t_.cache_before(step_);
  isolated_gave_off_ =
      same_logits(arms_.on(t_.newest(step_), cache, &tap), t_.logits_off[static_cast<std::size_t>(step_)]);
  return out;
}

/// The operation as it came, each arm with its own inputs.
void TracedStep::natural(TraceBirthRecord& r, const Operation& op) const {
  const auto equal = [&](SitePlace place) {
    const at::Tensor &on = on_.at(place.first, place.second), &off = off_.at(place.first, place.second);
    const at::Tensor same_shape = aligned(place.first, off, on);
    return op.stored ? bits_equal(before_newest(on), before_newest(same_shape)) : bits_equal(on, same_shape);
  };
  r.inputs_equal = std::all_of(op.inputs.begin(), op.inputs.end(), equal);
  r.output_equal = equal(op.output);
}

std::vector<TraceBirthRecord> TracedStep::births() const {
  std::vector<TraceBirthRecord> records;
  for (const Operation& op : operations_of(arms_.config(), on_.has(Site::weights, 0))) {
    TraceBirthRecord& r = records.emplace_back();
    r.step = step_;
    r.layer = op.output.second + 1;
    r.operation = op.name;
    natural(r, op);
    const TensorDifference& d = alone_.at({op.output.first, op.output.second, op.stored});
    r.isolated_equal = d.equal;
    r.isolated_rel_l2 = d.rel_l2;
    r.isolated_max_abs = d.max_abs;
  }
  return records;
}

std::vector<at::Tensor> TracedStep::mix_errors(bool stored_only) const {
  CaptureTap mix([](Site site, std::int64_t) { return site == Site::mix; });
  if (stored_only) {
    EditTap from_off(
        [](Site site, std::int64_t) {
          return site == Site::query_rotary || site == Site::key_rotary || site == Site::value;
        },
        [&](Site site, std::int64_t layer, const at::Tensor& on) {
          return at::empty_like(on).copy_(off_.at(site, layer));
        });
    TapChain both{&from_off, &mix};
    KvCache cache = t_.cache_before(step_);
    arms_.on(t_.newest(step_), cache, &both);
  }
  std::vector<at::Tensor> errors;
  for (std::int64_t l = 0; l < arms_.config().sizes.n_layers; ++l) {
    const at::Tensor& on_BHTD = stored_only ? mix.at(Site::mix, l) : on_.at(Site::mix, l);
    const at::Tensor error_BHTD = at::sub(on_BHTD.to(at::kDouble), off_.at(Site::mix, l).to(at::kDouble));
    errors.push_back(error_BHTD.reshape({error_BHTD.size(1), -1}));
  }
  return errors;
}

}  // namespace kvdiv
