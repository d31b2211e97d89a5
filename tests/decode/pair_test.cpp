// The protocol of a pair: who is fed what, which steps are shown to whom, what is counted.
#include "kvdiv/decode/pair.h"

#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvdiv/decode/sampling.h"
#include "kvdiv/decode/stepper.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

const std::vector<TokenId>& prompt() {
  static const std::vector<TokenId> ids{3, 17, 42, 8, 77, 5, 61};
  return ids;
}

struct Seen {
  Clock clock;
  std::int64_t step;
  bool same_prefix;
  TokenId token_on, token_off;
  std::vector<double> on, off;
};

/// Greedy, but the `call`-th choice at `flip_step` (0: ON, 1: OFF …) is another token: a planted flip.
class PlantedChoice {
 public:
  PlantedChoice(std::int64_t flip_step, int call, TokenId token) : flip_step_(flip_step), call_(call), token_(token) {}
  TokenId operator()(std::span<const double> logits, std::int64_t step) {
    if (step != step_) n_calls_ = 0;
    step_ = step;
    const bool is_planted = step == flip_step_ && n_calls_++ == call_;
    return is_planted ? token_ : argmax_token(logits);
  }

 private:
  std::int64_t flip_step_, step_ = -1;
  int call_, n_calls_ = 0;
  TokenId token_;
};

struct Decoded {
  PairOutcome outcome;
  std::vector<Seen> seen;
};

Decoded decode(const Decoder& decoder, PairRequest request) {
  Decoded d;
  if (request.prompt.empty()) request.prompt = prompt();
  d.outcome = decode_pair(decoder, request, [&](const StepView& s) {
    d.seen.push_back({s.clock, s.step, s.same_prefix, s.token_on, s.token_off, {s.logits_on().begin(), s.logits_on().end()}, {s.logits_off().begin(), s.logits_off().end()}});
  });
  return d;
}

PairRequest request_of(std::int64_t n, Chooser choose, Clock clock = Clock::both) {
  PairRequest r;
  r.max_new_tokens = n;
  r.choose = std::move(choose);
  r.clock = clock;
  return r;
}

TokenId greedy(std::span<const double> logits, std::int64_t) { return argmax_token(logits); }

constexpr TokenId kPlanted = 50;

class PlantedFlip : public testing::Test {
 protected:
  PlantedFlip() : model_(load(golden_dir("tiny-llama"), DType::float64)) {}
  LoadedModel model_;
};

TEST_F(PlantedFlip, BothClocks) {
  const auto [out, seen] = decode(model_.decoder, request_of(12, PlantedChoice(5, 1, kPlanted)));
  ASSERT_EQ(out.flip_index, 5);
  ASSERT_EQ(seen.size(), 6u + 2 * 6u);
  for (std::size_t i = 0; i <= 5; ++i) EXPECT_EQ(seen[i].clock, Clock::both);
  std::size_t n_forced = 0, n_free = 0;
  for (const Seen& s : seen) {
    n_forced += s.clock == Clock::forced;
    n_free += s.clock == Clock::free;
    EXPECT_EQ(s.same_prefix, s.clock != Clock::free);
  }
  EXPECT_EQ(n_forced, 6u);
  EXPECT_EQ(n_free, 6u);
  EXPECT_EQ(out.tokens_on.size(), 12u);
  EXPECT_EQ(out.tokens_off.size(), 12u);
  EXPECT_EQ(out.tokens_off[5], kPlanted);
  // ON: prompt once, then one row a step. OFF: every prefix, twice after the flip.
  const std::int64_t P = 7;
  EXPECT_EQ(out.n_tokens_on.computed, P + 11);
  std::int64_t off = 0;
  for (std::int64_t s = 0; s < 12; ++s) off += (P + s) * (s > 5 ? 2 : 1);
  EXPECT_EQ(out.n_tokens_off.computed, off);
  EXPECT_EQ(out.n_tokens_on.expected, out.n_tokens_on.computed);
  EXPECT_EQ(out.n_tokens_off.expected, out.n_tokens_off.computed);
}

/// The free clock's logits are those of OFF's own text, the forced clock's those of ON's: each recomputed from scratch.
TEST_F(PlantedFlip, EachClockSeesItsOwnPrefix) {
  const auto [out, seen] = decode(model_.decoder, request_of(10, PlantedChoice(4, 1, kPlanted)));
  for (const Seen& s : seen) {
    const auto& own = s.clock == Clock::free ? out.tokens_off : out.tokens_on;
    std::vector<TokenId> prefix = prompt();
    prefix.insert(prefix.end(), own.begin(), own.begin() + s.step);
    EXPECT_EQ(to_doubles(model_.decoder.forward(prefix, nullptr)), s.off) << "step " << s.step;
  }
}

TEST_F(PlantedFlip, ForcedClockAlone) {
  const auto [out, seen] = decode(model_.decoder, request_of(12, PlantedChoice(5, 1, kPlanted), Clock::forced));
  EXPECT_EQ(out.flip_index, 5);
  ASSERT_EQ(seen.size(), 12u);
  EXPECT_EQ(seen[5].clock, Clock::both);
  EXPECT_EQ(seen[6].clock, Clock::forced);
  EXPECT_EQ(out.tokens_off.size(), 12u);
  EXPECT_EQ(out.tokens_off[7], out.tokens_on[7]) << "fed ON's tokens, OFF chooses the same again";
}

TEST_F(PlantedFlip, FreeClockAlone) {
  const auto [out, seen] = decode(model_.decoder, request_of(12, PlantedChoice(5, 1, kPlanted), Clock::free));
  ASSERT_EQ(seen.size(), 12u);
  EXPECT_EQ(seen[6].clock, Clock::free);
  std::int64_t off = 0;
  for (std::int64_t s = 0; s < 12; ++s) off += 7 + s;
  EXPECT_EQ(out.n_tokens_off.computed, off);
}

/// B50: a list of ends; the longer arm's tail is a divergence at the step where the other ended.
TEST_F(PlantedFlip, AnArmThatEndsEarlierHasDiverged) {
  for (const int which : {0, 1}) {
    PairRequest request = request_of(12, PlantedChoice(3, which, kPlanted));
    request.eos_ids = {1, kPlanted};
    const auto [out, seen] = decode(model_.decoder, request);
    EXPECT_EQ(out.flip_index, 3);
    EXPECT_EQ(which == 0 ? out.finish_on : out.finish_off, Finish::eos);
    const auto& ended = which == 0 ? out.tokens_on : out.tokens_off;
    const auto& other = which == 0 ? out.tokens_off : out.tokens_on;
    EXPECT_EQ(ended.size(), 4u);
    EXPECT_EQ(ended.back(), kPlanted);
    EXPECT_GT(other.size(), 4u);
    for (const Seen& s : seen)
      if (s.step > 3) {
        EXPECT_EQ(s.clock, Clock::forced) << "no free step where one arm has ended";
      }
    EXPECT_EQ(seen.size(), which == 0 ? 4u : other.size()) << "the forced clock ends where ON ends";
  }
}

TEST_F(PlantedFlip, EqualTextsThatEndAreNotDiverged) {
  const auto plain = decode(model_.decoder, request_of(12, greedy)).outcome;
  PairRequest request = request_of(12, greedy);
  request.eos_ids = {plain.tokens_on[6]};
  const auto [out, seen] = decode(model_.decoder, request);
  EXPECT_EQ(out.tokens_on, out.tokens_off);
  EXPECT_FALSE(out.flip_index);
  EXPECT_EQ(out.finish_on, Finish::eos);
  EXPECT_EQ(out.finish_off, Finish::eos);
  EXPECT_EQ(seen.size(), out.tokens_on.size());
}

TEST(Pair, StepZeroIsTheSameWorkInBothArms) {
  for (const std::string& name : golden_models())
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32}) {
      const LoadedModel model = load(golden_dir(name), dtype);
      const auto d = decode(model.decoder, request_of(3, greedy));
      EXPECT_EQ(d.seen[0].on, d.seen[0].off) << name;
    }
}

TEST(Pair, TwiceGivesTheSameBits) {
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float16);
  const auto a = decode(model.decoder, request_of(10, greedy)), b = decode(model.decoder, request_of(10, greedy));
  ASSERT_EQ(a.seen.size(), b.seen.size());
  for (std::size_t i = 0; i < a.seen.size(); ++i) {
    EXPECT_EQ(a.seen[i].on, b.seen[i].on);
    EXPECT_EQ(a.seen[i].off, b.seen[i].off);
  }
}

/// B29: an activation beyond 65,504 stops the pair with the layer named; it is never "no flip".
TEST(Pair, OverflowStopsWithItsLayer) {
  LoadedModel model = load(golden_dir("tiny-llama"), DType::float16);
  for (const NamedWeight& w : model.decoder.weights())
    if (w.name == "model.layers.1.mlp.down_proj.weight") *w.tensor = at::mul(*w.tensor, 30000.0);
  PairRequest request = request_of(5, greedy);
  ActivationTap watching(model.decoder.config().sizes.n_layers);
  request.activations = &watching;
  const auto [out, seen] = decode(model.decoder, request);
  ASSERT_TRUE(out.nonfinite.has_value());
  EXPECT_EQ(out.nonfinite->step, 0);
  EXPECT_EQ(out.nonfinite->layer, 2) << "block outputs count from 1";
  EXPECT_GT(out.nonfinite->max_abs_before, 0.0);
  EXPECT_LT(out.nonfinite->max_abs_before, 65504.0);
  EXPECT_EQ(out.finish_on, Finish::nonfinite);
  EXPECT_TRUE(out.tokens_on.empty());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].token_on, -1);
  EXPECT_FALSE(std::isfinite(seen[0].on[0]));
}

TEST(Pair, RecordsTheLargestActivations) {
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float16);
  PairRequest request = request_of(4, greedy);
  ActivationTap activations(model.decoder.config().sizes.n_layers);
  request.activations = &activations;
  decode(model.decoder, request);
  ASSERT_EQ(activations.max_abs().size(), 4u + 2u);
  for (const double v : activations.max_abs()) {
    EXPECT_GT(v, 0.0);
    EXPECT_LT(v, 65504.0);
  }
}

/// Chunked prefill is the same prompt: same tokens in FP64.
TEST(Pair, ChunkedPrefillAgrees) {
  const LoadedModel model = load(golden_dir("tiny-mistral"), DType::float64);
  PairRequest chunked = request_of(8, greedy);
  chunked.prefill_chunk = 3;
  EXPECT_EQ(decode(model.decoder, chunked).outcome.tokens_on, decode(model.decoder, request_of(8, greedy)).outcome.tokens_on);
}

}  // namespace
}  // namespace kvdiv::test
