#include "kvdiv/decode/patching.h"

#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "kvdiv/base/error.h"
#include "kvdiv/base/random.h"
#include "kvdiv/decode/capture.h"

namespace kvdiv {
namespace {

bool has_layer(const Patch& patch, std::int64_t layer) {
  return std::find(patch.layers.begin(), patch.layers.end(), layer) != patch.layers.end();
}

/// Copies positions [begin, end) and the chosen heads of `from` into `to`; both [1,G,S,D] (S may differ behind end).
/// `shift`: position of the first row of `to`.
void copy_positions(const at::Tensor& to, const at::Tensor& from, const Patch& patch, std::int64_t begin,
                    std::int64_t end, std::int64_t shift) {
  begin = std::max(begin, shift);
  end = std::min(end, shift + to.size(2));
  if (begin >= end) return;
  const auto copy = [&](const at::Tensor& a, const at::Tensor& b) {
    a.narrow(2, begin - shift, end - begin).copy_(b.narrow(2, begin, end - begin));
  };
  if (!patch.heads) return copy(to, from);
  for (const std::int64_t head : *patch.heads) copy(to.narrow(1, head, 1), from.narrow(1, head, 1));
}

/// Where a patch acts during a forward call. `shift` is the position of the first row that the sites show.
EditTap edits(const Patch& patch, const StepStates& donor, Site keys, Site values, std::int64_t begin, std::int64_t end,
              std::int64_t shift) {
  return EditTap(
      [&patch, keys, values](Site site, std::int64_t layer) {
        const bool is_wanted =
            (site == keys && patch.keys) || (site == values && patch.values) || (site == Site::block && patch.residual);
        return is_wanted && has_layer(patch, layer);
      },
      [&patch, &donor, keys, begin, end, shift](Site site, std::int64_t layer, const at::Tensor& tensor) {
        const auto i = static_cast<std::size_t>(layer);
        if (site == Site::block) return with_last_row(site, tensor, donor.block[i]);
        at::Tensor out = tensor.clone();
        copy_positions(out, site == keys ? donor.keys[i] : donor.values[i], patch, begin, end, shift);
        return out;
      });
}

CaptureTap capture_states(bool with_kv) {
  return CaptureTap([with_kv](Site site, std::int64_t) {
    return site == Site::block || (with_kv && (site == Site::key_rotary || site == Site::value));
  });
}

/// ±1 for each element: one bit of a Philox block each.
at::Tensor random_signs(const at::Tensor& like, std::uint64_t seed, std::uint32_t stream) {
  at::Tensor signs = at::empty(like.sizes(), at::TensorOptions().dtype(at::kDouble));
  auto* out = signs.mutable_data_ptr<double>();
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  std::array<std::uint32_t, 4> words{};
  for (std::int64_t i = 0; i < signs.numel(); ++i) {
    if (i % 128 == 0) words = philox4x32({static_cast<std::uint32_t>(i / 128), stream, 0, 0}, key);
    const auto bit = static_cast<std::size_t>(i % 128);
    out[i] = (words[bit / 32] >> (bit % 32)) & 1U ? 1.0 : -1.0;
  }
  return signs;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> position_range(Positions positions, std::int64_t n_prompt, std::int64_t step) {
  switch (positions) {
    case Positions::stored:
      return {0, n_prompt + step - 1};
    case Positions::prompt:
      return {0, n_prompt};
    case Positions::generated:
      return {n_prompt, n_prompt + step};
    case Positions::all:
      break;
  }
  return {0, n_prompt + step};
}

StepStates states_of_on(const Arms& arms, const Trajectory& t, std::int64_t step) {
  const c10::InferenceMode inference;
  CaptureTap tap = capture_states(false);
  KvCache cache = step == 0 ? arms.decoder().make_cache(t.n_prompt()) : t.cache_before(step);
  if (step == 0)
    arms.on(t.prompt, cache, &tap);
  else
    arms.on(t.newest(step), cache, &tap);
  StepStates out;
  for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer) {
    out.keys.push_back(cache.keys(layer).clone());
    out.values.push_back(cache.values(layer).clone());
    out.block.push_back(last_row(Site::block, tap.at(Site::block, layer)));
  }
  return out;
}

StepStates states_of_off(const Arms& arms, const Trajectory& t, std::int64_t step) {
  const c10::InferenceMode inference;
  CaptureTap tap = capture_states(true);
  arms.off(t.prefix(step), &tap);
  StepStates out;
  for (std::int64_t layer = 0; layer < arms.config().sizes.n_layers; ++layer) {
    out.keys.push_back(tap.at(Site::key_rotary, layer));
    out.values.push_back(tap.at(Site::value, layer));
    out.block.push_back(last_row(Site::block, tap.at(Site::block, layer)));
  }
  return out;
}

StepStates random_states(const StepStates& on, const StepStates& off, std::uint64_t seed) {
  const c10::InferenceMode inference;
  StepStates out = on;
  std::uint32_t stream = 0;
  const auto scatter = [&](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor wide = a.to(at::kDouble);
    const at::Tensor change = at::mul(at::sub(b.to(at::kDouble), wide), random_signs(a, seed, stream++).to(a.device()));
    return at::add(wide, change).to(a.scalar_type());
  };
  for (std::size_t i = 0; i < on.keys.size(); ++i) {
    out.keys[i] = scatter(on.keys[i], off.keys[i]);
    out.values[i] = scatter(on.values[i], off.values[i]);
  }
  return out;
}

at::Tensor patched_on_step(const Arms& arms, const Trajectory& t, std::int64_t step, const Patch& patch,
                           const StepStates& donor, KvCache& cache) {
  if (step < 1) fail(ErrorKind::internal, "patched_on_step: step {}: ON has a cache from step 1 on", step);
  const c10::InferenceMode inference;
  const auto [begin, end] = position_range(patch.positions, t.n_prompt(), step);
  for (const std::int64_t layer : patch.layers) {
    const auto i = static_cast<std::size_t>(layer);
    if (patch.keys) copy_positions(cache.keys(layer), donor.keys[i], patch, begin, end, 0);
    if (patch.values) copy_positions(cache.values(layer), donor.values[i], patch, begin, end, 0);
  }
  // The newest token's own key and value go into the cache during the step: replaced on their way.
  EditTap tap = edits(patch, donor, Site::key_rotary, Site::value, begin, end, cache.length());
  return arms.on(t.newest(step), cache, &tap);
}

at::Tensor patched_off_step(const Arms& arms, const Trajectory& t, std::int64_t step, const Patch& patch,
                            const StepStates& donor) {
  const c10::InferenceMode inference;
  const auto [begin, end] = position_range(patch.positions, t.n_prompt(), step);
  EditTap tap = edits(patch, donor, Site::keys, Site::values, begin, end, 0);
  return arms.off(t.prefix(step), &tap);
}

}  // namespace kvdiv
