#include "kvdiv/decode/arms.h"

#include <algorithm>
#include <cmath>

#include "kvdiv/base/error.h"
#include "kvdiv/decode/sampling.h"

namespace kvdiv {
namespace {

void require_finite(const std::vector<double>& logits, const char* arm, std::int64_t step) {
  if (std::all_of(logits.begin(), logits.end(), [](double v) { return std::isfinite(v); })) return;
  fail(ErrorKind::invalid_measurement,
       "arm {}: a logit is not finite at step {}; use --dtype bfloat16 or float32, and see the layer with kvdiv run",
       arm, step);
}

}  // namespace

TapChain::TapChain(std::initializer_list<Tap*> taps) {
  std::copy_if(taps.begin(), taps.end(), std::back_inserter(taps_), [](Tap* t) { return t != nullptr; });
}

bool TapChain::wants(Site site, std::int64_t layer) const {
  return std::any_of(taps_.begin(), taps_.end(), [&](const Tap* t) { return t->wants(site, layer); });
}

at::Tensor TapChain::visit(Site site, std::int64_t layer, const at::Tensor& tensor) {
  at::Tensor out = tensor;
  for (Tap* tap : taps_)
    if (tap->wants(site, layer)) out = tap->visit(site, layer, out);
  return out;
}

Tap* TapChain::get() {
  if (taps_.empty()) return nullptr;
  return taps_.size() == 1 ? taps_.front() : this;
}

ArmOutput PlantedArm::forward(const Decoder& decoder, std::span<const TokenId> tokens, KvCache* cache,
                              Tap* observer) const {
  TapChain chain{tap, observer};
  if (fault != nullptr) return fault->forward(decoder, tokens, cache, chain.get());
  return {decoder.forward(tokens, cache, chain.get()), std::ssize(tokens)};
}

at::Tensor Arms::on(std::span<const TokenId> tokens, KvCache& cache, Tap* tap) const {
  return planted_.on.forward(decoder_, tokens, &cache, tap).logits_V;
}

at::Tensor Arms::off(std::span<const TokenId> prefix, Tap* tap) const {
  return planted_.off.forward(decoder_, prefix, nullptr, tap).logits_V;
}

std::vector<double> host_logits(const at::Tensor& logits_V) {
  const at::Tensor host = logits_V.to(at::kCPU, at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

std::vector<TokenId> Trajectory::prefix(std::int64_t step) const {
  std::vector<TokenId> out = prompt;
  out.insert(out.end(), tokens.begin(), tokens.begin() + step);
  return out;
}

std::span<const TokenId> Trajectory::newest(std::int64_t step) const {
  return std::span(tokens).subspan(static_cast<std::size_t>(step - 1), 1);
}

KvCache Trajectory::cache_before(std::int64_t step) const {
  KvCache copy = cache.fork();
  copy.truncate(n_prompt() + step - 1);
  return copy;
}

Trajectory decode_trajectory(const Arms& arms, const TrajectoryRequest& request) {
  const auto n_prompt = static_cast<std::int64_t>(request.prompt.size());
  Trajectory t{{request.prompt.begin(), request.prompt.end()},
               {},
               {},
               {},
               arms.decoder().make_cache(n_prompt + request.max_steps)};
  for (std::int64_t step = 0; step < request.max_steps; ++step) {
    t.logits_on.push_back(host_logits(step == 0 ? arms.on(request.prompt, t.cache) : arms.on(t.newest(step), t.cache)));
    require_finite(t.logits_on.back(), "ON", step);
    if (request.with_off) {
      t.logits_off.push_back(host_logits(arms.off(t.prefix(step))));
      require_finite(t.logits_off.back(), "OFF", step);
    }
    t.tokens.push_back(argmax_token(t.logits_on.back()));
    if (request.on_step) request.on_step();
    if (std::find(request.eos_ids.begin(), request.eos_ids.end(), t.tokens.back()) != request.eos_ids.end()) break;
  }
  return t;
}

}  // namespace kvdiv
