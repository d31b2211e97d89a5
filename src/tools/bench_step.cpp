// Where a decoding step of SmolLM2-135M's size spends its time: the share of the products, and the speed over the torch
// backend. Weights are random (nothing depends on them), of the published config; ON against a prefix, OFF of a prefix.
#include <ATen/Functions.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "kvdiv/model/decoder.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/numerics/forwarding_ops.h"

namespace kvdiv::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Another backend's operations, with the time that its products and its attention take.
class TimedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  at::Tensor linear(const at::Tensor& x, const Matrix& w) const override {
    return timed(products_, [&] { return wrapped().linear(x, w); });
  }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& visible,
                       const AttentionParams& p, TapPoint tap) const override {
    return timed(attention_, [&] { return wrapped().attention(q, k, v, visible, p, tap); });
  }

  mutable double products_ = 0.0, attention_ = 0.0;

 private:
  template <class F>
  static at::Tensor timed(double& seconds, F work) {
    const auto start = Clock::now();
    at::Tensor y = work();
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
    return y;
  }
};

ModelConfig smollm2() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.sizes = {30, 576, 1536, 49152, 9, 3, 64, 8192};
  config.traits.query_scale = 0.125;
  config.traits.windows.assign(30, std::nullopt);
  config.traits.tied_head = true;
  config.rms_norm_eps = 1e-5;
  config.rope_theta = 100000.0;
  return config;
}

Decoder random_model(DType dtype, std::shared_ptr<const Ops> ops) {
  const c10::InferenceMode inference;
  at::manual_seed(1);
  Decoder decoder(smollm2(), dtype, std::move(ops));
  for (const NamedWeight& w : decoder.weights())
    decoder.put(w, at::randn(w.shape, at::TensorOptions().dtype(at::kFloat)).mul(0.03).to(scalar_type(dtype)));
  return decoder;
}

struct Step {
  DType dtype;
  bool cached;
  std::int64_t length;
};

class Stepping {
 public:
  Stepping(const Step& step, const std::string& backend)
      : ops(std::make_shared<TimedOps>(make_ops(backend, "eager"))),
        decoder_(random_model(step.dtype, ops)),
        cache_(decoder_.make_cache(step.length + 1)),
        cached_(step.cached) {
    for (std::int64_t i = 0; i < step.length; ++i) prefix_.push_back(static_cast<TokenId>(i * 37 % 49152));
    decoder_.forward(prefix_, cached_ ? &cache_ : nullptr);
    ops->products_ = ops->attention_ = 0.0;
  }

  double run() {
    const auto start = Clock::now();
    const TokenId token = 17;
    if (cached_) {
      decoder_.forward(std::span(&token, 1), &cache_);
      cache_.truncate(static_cast<std::int64_t>(prefix_.size()));
    } else {
      decoder_.forward(prefix_, nullptr);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::shared_ptr<TimedOps> ops;

 private:
  Decoder decoder_;
  KvCache cache_;
  bool cached_;
  std::vector<TokenId> prefix_;
};

void step_of(benchmark::State& state, const Step& step) {
  Stepping ours(step, "invariant"), vendors(step, "torch");
  double ours_s = 0.0, vendors_s = 0.0;
  for (auto _ : state) {
    const double seconds = ours.run();
    state.SetIterationTime(seconds);
    ours_s += seconds;
    vendors_s += vendors.run();
  }
  state.counters["in_products"] = ours.ops->products_ / ours_s;
  state.counters["in_attention"] = ours.ops->attention_ / ours_s;
  state.counters["of_torch"] = vendors_s / ours_s;
}

}  // namespace

void register_steps() {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32})
    for (const bool cached : {true, false})
      for (const std::int64_t length : {128, 512}) {
        const std::string name =
            std::string("step/") + std::string(name_of(dtype)) + (cached ? "/on/" : "/off/") + std::to_string(length);
        const Step step{dtype, cached, length};
        benchmark::RegisterBenchmark(name.c_str(), [step](benchmark::State& state) { step_of(state, step); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->Iterations(cached ? 20 : 3);
      }
}

}  // namespace kvdiv::bench
