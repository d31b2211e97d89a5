// The invariant backend in a whole model: ON and OFF are the same bits, in every dtype, however the prompt is cut.
#include <gtest/gtest.h>

#include <algorithm>

#include "kvdiv/decode/capture.h"
#include "kvdiv/decode/stepper.h"
#include "kvdiv/io/tokenizer.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

LoadedModel load_invariant(const std::filesystem::path& dir, DType dtype) {
  at::set_num_threads(1);
  Warnings warnings;
  return load_model(Checkpoint::open(dir), config_of(dir), dtype, make_ops("invariant", "eager"), warnings);
}

const std::vector<DType> kDTypes{DType::float16, DType::bfloat16, DType::float32, DType::float64};

std::vector<TokenId> prompt_of(std::int64_t length, std::int64_t vocab) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back((7 * i + 3) % vocab);
  return ids;
}

void expect_same_bits(const Decoder& decoder, std::int64_t n_prompt, std::int64_t chunk, std::int64_t n_steps) {
  const auto prompt = prompt_of(n_prompt, decoder.config().sizes.vocab);
  CachedStepper on(decoder, n_prompt + n_steps, chunk);
  FullStepper off(decoder);
  at::Tensor a = on.prefill(prompt), b = off.prefill(prompt);
  for (std::int64_t step = 0; step < n_steps; ++step) {
    ASSERT_EQ(to_doubles(a), to_doubles(b)) << "step " << step << ", prompt " << n_prompt << ", chunk " << chunk;
    const auto logits = to_doubles(a);
    const TokenId token = std::max_element(logits.begin(), logits.end()) - logits.begin();
    a = on.step(token);
    b = off.step(token);
  }
}

TEST(Invariant, OnAndOffAreTheSameBits) {
  for (const std::string& name : golden_models())
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      const LoadedModel model = load_invariant(golden_dir(name), dtype);
      for (const std::int64_t prompt : {1, 4, 5, 6, 23})
        for (const std::int64_t chunk : {0, 1, 3, 8}) expect_same_bits(model.decoder, prompt, chunk, 12);
    }
}

TEST(Invariant, OnAndOffAreTheSameBitsOnTheToys) {
  for (const char* name : {"toy-llama", "toy-mistral", "toy-gemma2"})
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(name_of(dtype)));
      const LoadedModel model = load_invariant(toy_dir(name), dtype);
      expect_same_bits(model.decoder, 30, dtype == DType::bfloat16 ? 7 : 0, 24);
    }
}

/// The same arithmetic as the torch backend but for the order: in FP64 equal to rounding, in FP16 to a few units.
TEST(Invariant, IsTheSameModel) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const auto difference = [&](DType dtype, DType reference) {
      const LoadedModel ours = load_invariant(golden_dir(name), dtype), torch = load(golden_dir(name), reference);
      const auto prompt = prompt_of(19, ours.decoder.config().sizes.vocab);
      const auto a = to_doubles(ours.decoder.forward(prompt, nullptr));
      const auto b = to_doubles(torch.decoder.forward(prompt, nullptr));
      double scale = 0.0;
      for (const double v : b) scale = std::max(scale, std::abs(v));
      return max_abs_difference(a, b) / scale;
    };
    EXPECT_LT(difference(DType::float64, DType::float64), 1e-12);
    EXPECT_LT(difference(DType::float32, DType::float32), 1e-5);
    EXPECT_LT(difference(DType::float16, DType::float16), 2e-2);
    // No FP32 in the place of halves: the rounding of what is stored shows.
    EXPECT_GT(difference(DType::float16, DType::float64), 2e-4);
    EXPECT_GT(difference(DType::bfloat16, DType::float64), 2e-3);
  }
}

/// With a tap that wants the last layer all rows are computed, without one only the last: the same logits.
TEST(Invariant, LeavingOutUnreadRowsChangesNoBits) {
  for (const std::string& name : golden_models()) {
    const LoadedModel model = load_invariant(golden_dir(name), DType::float16);
    const auto prompt = prompt_of(21, model.decoder.config().sizes.vocab);
    CaptureTap all([](Site, std::int64_t) { return true; });
    const auto with_tap = to_doubles(model.decoder.forward(prompt, nullptr, &all));
    EXPECT_EQ(with_tap, to_doubles(model.decoder.forward(prompt, nullptr)));
    const auto last = model.decoder.config().sizes.n_layers - 1;
    EXPECT_EQ(all.at(Site::block, last).size(1), 21);
    EXPECT_EQ(all.at(Site::weights, last).size(2), 21);
  }
}

/// What is packed at load is what the checkpoint holds, in its dtype and without a second copy.
TEST(Invariant, WeightsArePackedInTheirOwnDtype) {
  const LoadedModel ours = load_invariant(golden_dir("tiny-gemma2"), DType::float16);
  LoadedModel packed = ours, torch = load(golden_dir("tiny-gemma2"), DType::float16);
  std::map<std::string, at::Tensor> plain;
  for (const NamedWeight& w : torch.decoder.weights()) plain[w.name] = *w.tensor;
  for (const NamedWeight& w : packed.decoder.weights()) {
    EXPECT_EQ(w.tensor->scalar_type(), at::kHalf) << w.name;
    EXPECT_EQ(to_doubles(packed.decoder.plain(w)), to_doubles(plain.at(w.name))) << w.name;
    const double rounded_up = static_cast<double>((w.shape.front() + 31) / 32 * 32) / static_cast<double>(w.shape.front());
    EXPECT_LE(w.tensor->numel(), static_cast<std::int64_t>(rounded_up * static_cast<double>(plain.at(w.name).numel()) + 0.5));
  }
}

/// Weights at another alignment, and two threads: the same logits.
TEST(Invariant, AlignmentAndThreadsChangeNothing) {
  LoadedModel model = load_invariant(toy_dir("toy-mistral"), DType::float16);
  const auto prompt = prompt_of(40, model.decoder.config().sizes.vocab);
  const auto before = to_doubles(model.decoder.forward(prompt, nullptr));
  at::set_num_threads(2);
  EXPECT_EQ(to_doubles(model.decoder.forward(prompt, nullptr)), before);
  at::set_num_threads(1);
  model.decoder.realign_weights(24);
  EXPECT_EQ(to_doubles(model.decoder.forward(prompt, nullptr)), before);
}

}  // namespace
}  // namespace kvdiv::test
