// Faults as values: each changes what it says and nothing else, one of no size changes no bit, and rows are counted as they are.
#include "kvdiv/decode/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kvdiv/decode/pair.h"
#include "kvdiv/decode/sampling.h"
#include "kvdiv/decode/stepper.h"
#include "support/models.h"

namespace kvdiv::test {
namespace {

using Rows = std::vector<std::vector<double>>;

constexpr std::int64_t kPrompt = 12, kSteps = 5;

std::vector<TokenId> prompt_of(std::int64_t length, std::int64_t vocab) {
  std::vector<TokenId> ids{1};
  for (std::int64_t i = 1; i < length; ++i) ids.push_back((7 * i * i + 3) % vocab);
  return ids;
}

FaultSpec spec_of(Fault fault) {
  FaultSpec spec;
  spec.fault = fault;
  return spec;
}

struct Texts {
  Rows on, off;
};

/// Both arms along fixed tokens, whatever they choose.
Texts decode(const Decoder& decoder, const Planted& planted) {
  const auto vocab = decoder.config().sizes.vocab;
  CachedStepper on(decoder, kPrompt + kSteps + 1);
  FullStepper off(decoder);
  on.set_planted(planted.on);
  off.set_planted(planted.off);
  const auto prompt = prompt_of(kPrompt, vocab);
  Texts out{{to_doubles(on.prefill(prompt))}, {to_doubles(off.prefill(prompt))}};
  for (std::int64_t s = 1; s < kSteps; ++s) {
    const TokenId token = (13 * s + 4) % vocab;
    out.on.push_back(to_doubles(on.step(token)));
    out.off.push_back(to_doubles(off.step(token)));
  }
  return out;
}

bool is_planted_in_prefill(Fault fault) {
  return fault == Fault::mask_missing_in_chunk || fault == Fault::doubled_bos || fault == Fault::last_position_wrong;
}

TEST(Faults, ChangeTheirOwnArmFromTheirOwnStepOn) {
  for (const std::string& name : golden_models()) {
    const LoadedModel wide = load(golden_dir(name), DType::float64), half = load(golden_dir(name), DType::float16);
    const Texts healthy_wide = decode(wide.decoder, {}), healthy_half = decode(half.decoder, {});
    std::set<Fault> planted;
    for (const auto& [kind, fault_name] : EnumNames<Fault>::values) {
      SCOPED_TRACE(fmt::format("{} {}", name, fault_name));
      // Rounding elsewhere is nothing in float64: it is planted where it rounds.
      const bool is_rounding = kind == Fault::norm_order_changed;
      const Decoder& decoder = is_rounding ? half.decoder : wide.decoder;
      const Texts& healthy = is_rounding ? healthy_half : healthy_wide;
      if (!cannot_be_planted(spec_of(kind), decoder.config(), decoder.dtype(), kPrompt, kPrompt + 1).empty()) continue;
      planted.insert(kind);
      const PlantedFault fault(spec_of(kind));
      const Texts seen = decode(decoder, fault.planted());
      const bool is_on = arm_of(kind) == Arm::on;
      EXPECT_EQ(is_on ? seen.off : seen.on, is_on ? healthy.off : healthy.on) << "the other arm";
      const Rows &own = is_on ? seen.on : seen.off, &before = is_on ? healthy.on : healthy.off;
      if (!is_planted_in_prefill(kind)) {
        EXPECT_EQ(own[0], before[0]) << "step 0";
      }
      // A window of a few keys hides a doubled first token from the newest one: there the rows tell (see below).
      if (kind == Fault::doubled_bos && name == "tiny-mistral") continue;
      EXPECT_GT(max_abs_difference(own[is_planted_in_prefill(kind) ? 0 : 1], before[is_planted_in_prefill(kind) ? 0 : 1]), 1e-9);
    }
    EXPECT_GE(planted.size(), 12u);
  }
}

/// A fault of no size goes the same way as a real one, and must be bit for bit the healthy arm.
TEST(Faults, OfNoSizeAreNone) {
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float32);
  const Texts healthy = decode(model.decoder, {});
  const auto expect_none = [&](Fault fault, const std::function<void(FaultSpec&)>& change) {
    FaultSpec spec = spec_of(fault);
    change(spec);
    const PlantedFault planted(spec);
    const Texts seen = decode(model.decoder, planted.planted());
    EXPECT_EQ(seen.on, healthy.on) << name_of(fault);
    EXPECT_EQ(seen.off, healthy.off) << name_of(fault);
  };
  expect_none(Fault::rotary_off_by_one, [](FaultSpec& s) { s.shift = 0; });
  expect_none(Fault::window_off_by_one, [](FaultSpec& s) { s.shift = 0; });
  expect_none(Fault::kv_heads_mapped_wrongly, [](FaultSpec& s) { s.shift = 2; });  // of two heads
  expect_none(Fault::eps_changed, [](FaultSpec& s) { s.factor = 1.0; });
  expect_none(Fault::noise, [](FaultSpec& s) { s.size = 0.0; });
  expect_none(Fault::cache_lower_dtype, [](FaultSpec& s) { s.mantissa_bits = 23; });
  expect_none(Fault::last_position_wrong, [](FaultSpec& s) { s.shift = 0; });
  expect_none(Fault::mask_missing_in_chunk, [](FaultSpec& s) { s.chunk = 0; });  // this prefill is whole
  expect_none(Fault::stale_slot, [](FaultSpec& s) { s.distance = 0; });
}

/// Layers that are not named stay as they are: the change of a layer's cache is in that layer.
TEST(Faults, KeepToTheirLayer) {
  const LoadedModel model = load(golden_dir("tiny-gemma2"), DType::float64);
  for (const Fault kind : {Fault::stale_slot, Fault::cache_lower_dtype, Fault::noise}) {
    FaultSpec spec = spec_of(kind);
    spec.layer = 2;
    const PlantedFault fault(spec);
    KvCache healthy = model.decoder.make_cache(kPrompt), spoilt = model.decoder.make_cache(kPrompt);
    const auto prompt = prompt_of(kPrompt, 96);
    Arms(model.decoder).on(prompt, healthy);
    Arms(model.decoder, fault.planted()).on(prompt, spoilt);
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(to_doubles(healthy.keys(layer)) == to_doubles(spoilt.keys(layer)), layer != 2) << name_of(kind) << layer;
      EXPECT_EQ(to_doubles(healthy.values(layer)) == to_doubles(spoilt.values(layer)), layer != 2) << name_of(kind) << layer;
    }
  }
}

/// "Expected" is what the arm must compute, "computed" what went through the decoder, whatever is planted.
TEST(Faults, AreCountedAsTheyCompute) {
  const LoadedModel model = load(golden_dir("tiny-llama"), DType::float64);
  const auto prompt = prompt_of(kPrompt, 96);
  const auto outcome = [&](Fault kind) {
    const PlantedFault fault(spec_of(kind));
    PairRequest request;
    request.prompt = prompt;
    request.max_new_tokens = kSteps;
    request.clock = Clock::forced;
    request.choose = [](std::span<const double> logits, std::int64_t) { return argmax_token(logits); };
    request.planted = fault.planted();
    return decode_pair(model.decoder, request, [](const StepView&) {});
  };
  constexpr std::int64_t on = kPrompt + kSteps - 1, off = kSteps * kPrompt + kSteps * (kSteps - 1) / 2;
  for (const auto& [kind, name] : EnumNames<Fault>::values) {
    if (kind == Fault::window_off_by_one || kind == Fault::layers_swapped) continue;  // no window here
    const PairOutcome o = outcome(kind);
    EXPECT_EQ(o.n_tokens_on.expected, on) << name;
    EXPECT_EQ(o.n_tokens_off.expected, off) << name;
    EXPECT_EQ(o.n_tokens_on.computed, kind == Fault::doubled_bos ? on + 1 : on) << name;
    EXPECT_EQ(o.n_tokens_off.computed, kind == Fault::newest_token_only ? kPrompt + kSteps - 1
                                       : kind == Fault::prompt_dropped  ? kPrompt + kSteps * (kSteps - 1) / 2
                                                                        : off)
        << name;
  }
}

/// A decoder of a changed config has the weights of the one it was made of, also after these have moved in memory.
TEST(ChangedDecoder, FollowsItsWeights) {
  LoadedModel model = load(golden_dir("tiny-mistral"), DType::float16);
  const Decoder same = model.decoder.changed(model.decoder.config());
  EXPECT_FALSE(same.is_same_model(model.decoder));
  EXPECT_TRUE(Decoder(model.decoder).is_same_model(model.decoder));
  const auto prompt = prompt_of(kPrompt, 96);
  const auto before = to_doubles(model.decoder.forward(prompt, nullptr));
  EXPECT_EQ(to_doubles(same.forward(prompt, nullptr)), before);
  model.decoder.realign_weights(24);
  EXPECT_EQ(to_doubles(same.forward(prompt, nullptr)), before);
  ModelConfig config = model.decoder.config();
  config.rms_norm_eps *= 2.0;
  EXPECT_NE(to_doubles(model.decoder.changed(config).forward(prompt, nullptr)), before);
}

/// A call repeated for diagnosis is the faulty call, and leaves the state as it was.
TEST(Steppers, RepeatWhatIsPlanted) {
  const LoadedModel model = load(golden_dir("tiny-llama"), DType::float64);
  const PlantedFault fault(spec_of(Fault::doubled_bos));
  CachedStepper once(model.decoder, 30), twice(model.decoder, 30);
  for (CachedStepper* s : {&once, &twice}) s->set_planted(fault.planted().on);
  const auto prompt = prompt_of(kPrompt, 96);
  const auto first = to_doubles(once.prefill(prompt));
  twice.prefill(prompt);
  class Nothing : public Tap {
    bool wants(Site, std::int64_t) const override { return false; }
    at::Tensor visit(Site, std::int64_t, const at::Tensor& x) override { return x; }
  } nothing;
  EXPECT_EQ(to_doubles(twice.repeat_last(nothing)), first);
  EXPECT_EQ(twice.cache().length(), kPrompt + 1);
  EXPECT_EQ(to_doubles(twice.step(5)), to_doubles(once.step(5)));
}

TEST(Faults, SayWhyTheyCannotBePlanted) {
  const auto why = [](const std::string& model, Fault fault, DType dtype = DType::float16, std::int64_t n = 20) {
    return cannot_be_planted(spec_of(fault), config_of(golden_dir(model)), dtype, n, n + 1);
  };
  using testing::HasSubstr;
  EXPECT_THAT(why("tiny-llama", Fault::window_ignored), HasSubstr("no layer has a window"));
  EXPECT_THAT(why("tiny-mistral", Fault::window_ignored, DType::float16, 4), HasSubstr("do not fill a window of 5"));
  EXPECT_EQ(why("tiny-mistral", Fault::window_ignored), "");
  EXPECT_THAT(why("tiny-mistral", Fault::layers_swapped), HasSubstr("every layer has a window"));
  EXPECT_EQ(why("tiny-gemma2", Fault::layers_swapped), "");
  EXPECT_THAT(why("tiny-llama", Fault::kv_heads_mapped_wrongly), HasSubstr("one KV head"));
  EXPECT_THAT(why("tiny-llama", Fault::cap_dropped), HasSubstr("not capped"));
  EXPECT_THAT(why("tiny-llama", Fault::norm_order_changed, DType::float32), HasSubstr("nothing is rounded"));
  EXPECT_THAT(why("tiny-llama", Fault::stale_slot, DType::float16, 2), HasSubstr("no such slot"));
  FaultSpec narrow = spec_of(Fault::window_off_by_one);
  narrow.shift = -4;
  EXPECT_THAT(cannot_be_planted(narrow, config_of(golden_dir("tiny-mistral")), DType::float16, 20, 21), HasSubstr("cannot be 4 keys smaller"));
}

}  // namespace
}  // namespace kvdiv::test
