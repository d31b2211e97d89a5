// Whole models on a GPU, against the CPU and against themselves.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gpu.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/decode/step_graphs.h"
#include "kvdiv/model/memory.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv::test {
namespace {

struct Decoded {
  PairOutcome outcome;
  std::vector<std::vector<double>> on, off;
  std::vector<StepMetrics> metrics;
};

struct GpuDecoding : Gpu {
  static Decoded decode(const Decoder& decoder, StepGraphs* graphs = nullptr, std::int64_t chunk = 0, bool greedy = true) {
    const auto prompt = prompt_of(21, decoder.config().sizes.vocab);
    PairRequest request;
    request.prompt = prompt;
    request.max_new_tokens = 12;
    request.clock = Clock::forced;
    request.choose = [](std::span<const double> logits, std::int64_t) { return argmax_token(logits); };
    request.greedy = greedy;
    request.graphs = graphs;
    request.prefill_chunk = chunk;
    Decoded out;
    out.outcome = decode_pair(decoder, request, [&](const StepView& step) {
      out.on.emplace_back(step.logits_on().begin(), step.logits_on().end());
      out.off.emplace_back(step.logits_off().begin(), step.logits_off().end());
      out.metrics.push_back(step.metrics ? *step.metrics : compare_logits(step.logits_on(), step.logits_off()));
    });
    return out;
  }
};

TEST_F(GpuDecoding, Float64AgreesWithTheCpu) {
  for (const std::string& name : golden_models()) {
    const Decoded there = decode(load_there(name, DType::float64).decoder), here = decode(load(golden_dir(name), DType::float64).decoder);
    ASSERT_EQ(there.outcome.tokens_on, here.outcome.tokens_on) << name;
    for (std::size_t s = 0; s < here.on.size(); ++s)
      for (std::size_t v = 0; v < here.on[s].size(); ++v) {
        ASSERT_NEAR(there.on[s][v], here.on[s][v], 1e-10 * std::max(1.0, std::abs(here.on[s][v]))) << name;
        ASSERT_NEAR(there.off[s][v], here.off[s][v], 1e-10 * std::max(1.0, std::abs(here.off[s][v]))) << name;
      }
  }
}

TEST_F(GpuDecoding, RepeatsItself) {
  for (const std::string& name : golden_models())
    for (const char* backend : {"torch", "invariant", "cublaslt:heuristic"}) {
      const LoadedModel model = load_there(name, DType::float16, backend);
      const Decoded first = decode(model.decoder), second = decode(model.decoder);
      EXPECT_EQ(first.on, second.on) << name << " " << backend;
      EXPECT_EQ(first.off, second.off) << name << " " << backend;
    }
}

TEST_F(GpuDecoding, InvariantArmsAreBitEqual) {
  for (const std::string& name : golden_models())
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
      for (const std::int64_t chunk : {0, 4}) {
        const Decoded d = decode(load_there(name, dtype, "invariant").decoder, nullptr, chunk);
        EXPECT_EQ(d.on, d.off) << name << " " << name_of(dtype) << " chunk " << chunk;
        for (const StepMetrics& m : d.metrics) EXPECT_TRUE(m.bit_equal && m.kl_on_off_nats == 0.0);
      }
}

TEST_F(GpuDecoding, TorchArmsDifferByRounding) {
  for (const std::string& name : golden_models()) {
    const Decoded d = decode(load_there(name, DType::float16).decoder);
    for (const StepMetrics& m : d.metrics) EXPECT_LT(m.kl_on_off_nats, 1e-2) << name;
    EXPECT_TRUE(d.metrics.front().bit_equal) << name << ": a prefill is a prefill in both arms";
  }
}

TEST_F(GpuDecoding, DeviceMetricsAreTheHosts) {
  for (const DType dtype : {DType::float16, DType::float32, DType::float64}) {
    const Decoded d = decode(load_there("tiny-gemma2", dtype).decoder);
    for (std::size_t s = 0; s < d.metrics.size(); ++s) {
      const StepMetrics host = compare_logits(d.on[s], d.off[s]);
      EXPECT_NEAR(d.metrics[s].kl_on_off_nats, host.kl_on_off_nats, 1e-12 * host.kl_on_off_nats);
      EXPECT_NEAR(d.metrics[s].js_nats, host.js_nats, 1e-12 * host.js_nats);
      EXPECT_EQ(d.metrics[s].max_abs_dlogit, host.max_abs_dlogit);
      EXPECT_EQ(d.metrics[s].margin_on, host.margin_on);
      EXPECT_EQ(d.metrics[s].top1_on, host.top1_on);
      EXPECT_EQ(d.metrics[s].top1_off, host.top1_off);
      EXPECT_EQ(d.metrics[s].bit_equal, host.bit_equal);
    }
  }
}

/// Greedy choices are the device's; drawn ones need the rows. Both ways give one text.
TEST_F(GpuDecoding, ChoosesTheSameTokensOnDeviceAndHost) {
  const LoadedModel model = load_there("tiny-mistral", DType::float16);
  const Decoded there = decode(model.decoder), here = decode(model.decoder, nullptr, 0, false);
  EXPECT_EQ(there.outcome.tokens_on, here.outcome.tokens_on);
  EXPECT_EQ(there.on, here.on);
}

TEST_F(GpuDecoding, RecordedStepsHaveTheSameBits) {
  for (const std::string& name : golden_models())
    for (const char* backend : {"torch", "invariant", "cublaslt:no-split-k"}) {
      const LoadedModel model = load_there(name, DType::float16, backend);
      StepGraphs graphs(model.decoder, 40);
      const Decoded launched = decode(model.decoder);
      for (const char* round : {"launched", "recorded", "replayed"}) {
        const Decoded d = decode(model.decoder, &graphs);
        EXPECT_EQ(d.on, launched.on) << name << " " << backend << ", " << round;
        EXPECT_EQ(d.outcome.n_tokens_on.computed, launched.outcome.n_tokens_on.computed);
      }
      EXPECT_EQ(graphs.n_recorded(), 11);
    }
}

TEST_F(GpuDecoding, WeightsAreThoseOfTheCpu) {
  LoadedModel there = load_there("tiny-llama", DType::float16), here = load(golden_dir("tiny-llama"), DType::float16);
  EXPECT_EQ(there.cast.overflow, here.cast.overflow);
  EXPECT_EQ(there.cast.flushed_to_zero, here.cast.flushed_to_zero);
  const auto a = there.decoder.weights(), b = here.decoder.weights();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(there.decoder.plain(a[i]), here.decoder.plain(b[i]))) << a[i].name;
  const Decoded before = decode(there.decoder);
  there.decoder.realign_weights(128);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(there.decoder.plain(there.decoder.weights()[i]), here.decoder.plain(b[i]))) << a[i].name;
  EXPECT_EQ(decode(there.decoder).on, before.on);
}

TEST_F(GpuDecoding, WatchedActivationsAreTheCpus) {
  const LoadedModel model = load_there("tiny-gemma2", DType::float16);
  const std::int64_t n_layers = model.decoder.config().sizes.n_layers;
  ActivationTap there(n_layers, gpu->device());
  CaptureTap kept([](Site site, std::int64_t) { return site == Site::embedding || site == Site::block || site == Site::final_norm; });
  TapChain both{&kept, &there};
  model.decoder.forward(prompt_of(9, model.decoder.config().sizes.vocab), nullptr, both.get());
  const auto max_abs = there.max_abs();
  const auto of = [&](Site site, std::int64_t layer) { return kept.at(site, layer).abs().max().item().toDouble(); };
  EXPECT_EQ(max_abs[0], of(Site::embedding, 0));
  for (std::int64_t l = 0; l < n_layers; ++l) EXPECT_EQ(max_abs[static_cast<std::size_t>(l + 1)], of(Site::block, l));
  EXPECT_EQ(max_abs.back(), of(Site::final_norm, n_layers));
  EXPECT_FALSE(there.first_nonfinite_layer());
}

TEST_F(GpuDecoding, RefusesWhatDoesNotFit) {
  ModelConfig config = config_of(golden_dir("tiny-llama"));
  config.sizes.n_layers = 100'000'000;
  try {
    require_memory(config, DType::float16, 1024, gpu->device());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    EXPECT_NE(std::string(error.what()).find("available on the GPU"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvdiv::test
