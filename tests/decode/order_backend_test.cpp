// Decoding in named orders of summation: one order for both arms leaves no bit of difference, two of them make what FP16
// decoding on vendor kernels shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kvdiv/decode/pair.h"
#include "kvdiv/io/tokenizer.h"
#include "kvdiv/numerics/reduction.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

/// Longer than the windows of the toys (48 and 32 keys) in every vocabulary.
constexpr const char* kText = "Once upon a time, there was a little girl who had three apples, two dogs and a red ball. One day she went to the park with her friend Tom, and they played until it was dark and they were tired.";

struct Divergence {
  std::int64_t n_steps = 0, n_bit_equal = 0, n_prefill_equal = 0;
  double kl = 0.0, max_abs_dlogit = 0.0;
  double mean_kl() const { return kl / static_cast<double>(n_steps); }
};

LoadedModel load_ordered(const std::filesystem::path& dir, DType dtype, const std::string& backend) {
  at::set_num_threads(1);
  Warnings warnings;
  return load_model(Checkpoint::open(dir), config_of(dir), dtype, make_ops(backend, "eager"), warnings);
}

/// KL(p‖q) of two rows of logits, nats, each term ≥ 0.
double kl_of(std::span<const double> on, std::span<const double> off) {
  const auto log_sum = [](std::span<const double> x) {
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0.0;
    for (const double v : x) sum += std::exp(v - largest);
    return largest + std::log(sum);
  };
  const double p_sum = log_sum(on), q_sum = log_sum(off);
  double kl = 0.0;
  for (std::size_t i = 0; i < on.size(); ++i) {
    const double t = (off[i] - q_sum) - (on[i] - p_sum);
    kl += std::exp(on[i] - p_sum) * (std::expm1(t) - t);
  }
  return kl;
}

/// Both arms along ON's greedy tokens.
Divergence diverge(const LoadedModel& model, const std::string& toy, std::int64_t n_steps, std::int64_t prefill_chunk = 0) {
  const std::vector<TokenId> prompt = Tokenizer::open(toy_dir(toy))->encode(kText);
  EXPECT_GT(prompt.size(), 48u);
  PairRequest request;
  request.prompt = prompt;
  request.max_new_tokens = n_steps;
  request.clock = Clock::forced;
  request.prefill_chunk = prefill_chunk;
  request.choose = [](std::span<const double> logits, std::int64_t) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); };
  Divergence d;
  decode_pair(model.decoder, request, [&](const StepView& view) {
    const double largest = max_abs_difference({view.logits_on().begin(), view.logits_on().end()}, {view.logits_off().begin(), view.logits_off().end()});
    ++d.n_steps;
    d.n_bit_equal += largest == 0.0;
    if (view.step == 0) d.n_prefill_equal += largest == 0.0;
    d.kl += kl_of(view.logits_on(), view.logits_off());
    d.max_abs_dlogit = std::max(d.max_abs_dlogit, largest);
  });
  return d;
}

const std::vector<std::string> kToys{"toy-llama", "toy-mistral", "toy-gemma2"};

TEST(OrderBackend, OneOrderForBothArmsLeavesNoDifference) {
  struct Case {
    DType dtype;
    const char* backend;
    std::int64_t chunk;
  };
  for (const std::string& toy : kToys)
    for (const auto& [dtype, backend, chunk] : {Case{DType::float16, "order:pairwise", 0}, Case{DType::float16, "order:split-k:5", 3}, Case{DType::float16, "order:blocked:32@float16", 3},
                                                Case{DType::bfloat16, "order:split-k:5", 3}, Case{DType::float32, "order:split-k:5", 3}}) {
      const Divergence d = diverge(load_ordered(toy_dir(toy), dtype, backend), toy, 4, chunk);
      EXPECT_EQ(d.n_steps, 4);
      EXPECT_EQ(d.n_bit_equal, d.n_steps) << toy << " " << name_of(dtype) << " " << backend << " in chunks of " << chunk << ": max |Δlogit| " << d.max_abs_dlogit;
    }
}

// With FP32 accumulators two orders seldom change a number that is stored in FP16 (about one in 2¹³, by a whole last bit);
// with FP16 accumulators they change most of them.
TEST(OrderBackend, TwoOrdersMakeADivergenceOfTheSizeOfTheirRoundings) {
  for (const std::string& toy : kToys) {
    const auto of = [&](DType dtype, const char* backend) { return diverge(load_ordered(toy_dir(toy), dtype, backend), toy, 5); };
    const Divergence narrow = of(DType::float16, "order:prefill=blocked:32@float16,decode=split-k:8@float16");
    const Divergence half = of(DType::float16, "order:prefill=blocked:32,decode=split-k:8");
    const Divergence wide = of(DType::float32, "order:prefill=blocked:32,decode=split-k:8");
    for (const Divergence* d : {&narrow, &half, &wide}) {
      EXPECT_EQ(d->n_prefill_equal, 1) << "the prefill is the same work in both arms";
      EXPECT_LT(d->n_bit_equal, d->n_steps) << toy;
      EXPECT_GT(d->mean_kl(), 0.0) << toy;
      EXPECT_LT(d->mean_kl(), 1e-2) << toy;
    }
    EXPECT_GT(narrow.mean_kl(), 3.0 * half.mean_kl()) << toy;
    EXPECT_GT(narrow.mean_kl(), 1e4 * wide.mean_kl()) << toy;
    EXPECT_LT(wide.mean_kl(), 1e-9) << toy;
  }
}

}  // namespace
}  // namespace kvdiv::test
