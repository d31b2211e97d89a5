#include "run_controls.h"

#include <algorithm>

namespace kvdiv {
namespace {

/// Bytes by which weights are moved: an odd multiple of 8, so that neither 16- nor 64-byte alignment survives. On a GPU no
/// allocation is aligned to less than 128 bytes, and kernels may rely on it.
constexpr std::int64_t kOffsetBytes = 24, kGpuOffsetBytes = 128;

}  // namespace

bool ControlTally::all_hold() const { return failed().empty(); }

std::span<const std::pair<bool ControlTally::*, const char*>> boolean_controls() {
  static constexpr std::array<std::pair<bool ControlTally::*, const char*>, 5> controls{
      {{&ControlTally::on_on_bit_equal, "on_on_bit_equal"},
       {&ControlTally::off_off_bit_equal, "off_off_bit_equal"},
       {&ControlTally::prefill_bit_equal, "prefill_bit_equal"},
       {&ControlTally::order_independent, "order_independent"},
       {&ControlTally::alignment_independent, "alignment_independent"}}};
  return controls;
}

std::vector<std::string> ControlTally::failed() const {
  std::vector<std::string> names;
  for (const auto& [member, key] : boolean_controls())
    if (!(this->*member)) names.emplace_back(key);
  if (n_tokens_on.expected != n_tokens_on.computed) names.emplace_back("n_tokens_computed_on");
  if (n_tokens_off.expected != n_tokens_off.computed) names.emplace_back("n_tokens_computed_off");
  return names;
}

Json to_json(const ControlTally& t) {
  Json j = Json::object();
  for (const auto& [member, key] : boolean_controls()) j[key] = t.*member;
  j["n_tokens_computed_on"] = to_json_value(t.n_tokens_on);
  j["n_tokens_computed_off"] = to_json_value(t.n_tokens_off);
  return j;
}

PairFingerprint fingerprint_pair(const Decoder& decoder, const RunParams& params, const Condition& condition,
                                 const PromptItem& prompt, std::int64_t seed, const Planted& planted) {
  PairRequest request = make_request(decoder.config(), params, params.clock, condition, prompt, seed);
  request.max_new_tokens = std::min(request.max_new_tokens, kControlSteps);
  request.clock = params.clock == Clock::free ? Clock::free : Clock::forced;
  request.planted = planted;
  Fingerprinter fingerprinter;
  decode_pair(decoder, request, [&](const StepView& step) { fingerprinter.add(step); });
  return fingerprinter.take();
}

void repeat_pairs(const Decoder& decoder, const RunParams& params, const Condition& condition,
                  std::span<const ControlPair> pairs, ControlTally& tally, const Planted& planted) {
  if (pairs.empty()) return;
  PairFingerprint last;
  for (std::size_t i = pairs.size(); i-- > 0;) {
    last = fingerprint_pair(decoder, params, condition, *pairs[i].prompt, pairs[i].seed, planted);
    if (!(last == pairs[i].seen)) tally.order_independent = false;
  }
  const ControlPair& first = pairs.front();
  const PairFingerprint again = fingerprint_pair(decoder, params, condition, *first.prompt, first.seed, planted);
  if (again.on != last.on) tally.on_on_bit_equal = false;
  if (again.off != last.off) tally.off_off_bit_equal = false;
}

void check_alignment(Decoder& decoder, const RunParams& params, const Condition& condition, const ControlPair& pair,
                     ControlTally& tally, const Planted& planted) {
  decoder.realign_weights(decoder.device().is_cpu() ? kOffsetBytes : kGpuOffsetBytes);
  const PairFingerprint moved = fingerprint_pair(decoder, params, condition, *pair.prompt, pair.seed, planted);
  if (!(moved == pair.seen)) tally.alignment_independent = false;
}

}  // namespace kvdiv
