#include "common_pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common_fingerprint.h"
#include "kvdiv/stats/answers.h"
#include "kvdiv/stats/metrics.h"

namespace kvdiv {
namespace {

PairRecord pair_record(const Context& context, Clock clock, const Condition& c, const PromptItem& prompt,
                       std::int64_t seed, const PairOutcome& outcome) {
  PairRecord r;
  r.condition = c.name();
  r.pair_id = pair_id_of(c, prompt, seed);
  r.prompt_id = prompt.id;
  r.prompt_sha256 = prompt.sha256;
  r.n_prompt_tokens = static_cast<std::int64_t>(prompt.ids.size());
  r.seed = seed;
  r.tokens_on = outcome.tokens_on;
  r.tokens_off = outcome.tokens_off;
  r.finish_on = name_of(outcome.finish_on);
  r.finish_off = name_of(outcome.finish_off);
  r.flip_index = outcome.flip_index;
  r.diverged = outcome.tokens_on != outcome.tokens_off;
  r.gold = prompt.gold;
  r.n_tokens_computed_on = outcome.n_tokens_on;
  r.n_tokens_computed_off = outcome.n_tokens_off;
  r.nonfinite = outcome.nonfinite;
  // Under the forced clock OFF has a text of its own only as long as it agreed.
  const bool off_has_text = clock != Clock::forced || !outcome.flip_index;
  if (context.detokenize) {
    r.text_on = context.detokenize(r.tokens_on);
    if (off_has_text) r.text_off = context.detokenize(r.tokens_off);
  }
  if (!prompt.gold || !context.detokenize) return r;
  const auto judge = [&](const std::optional<std::string>& text, std::optional<std::string>& answer,
                         std::optional<bool>& correct) {
    if (!text) return;
    answer = extract_answer(*text).value;
    correct = answer.has_value() && same_number(*answer, *prompt.gold);
  };
  judge(r.text_on, r.answer_on, r.correct_on);
  judge(r.text_off, r.answer_off, r.correct_off);
  return r;
}

/// The largest logits of a row, with their texts.
std::vector<TopToken> top_of(const Context& context, std::span<const double> logits_V) {
  constexpr std::size_t kShown = 5;
  std::vector<TokenId> ids(logits_V.size());
  std::iota(ids.begin(), ids.end(), TokenId{0});
  const auto logit = [&](TokenId id) { return logits_V[static_cast<std::size_t>(id)]; };
  const std::size_t n = std::min(kShown, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(),
                    [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<TopToken> top;
  for (std::size_t i = 0; i < n; ++i) {
    top.push_back({ids[i], std::nullopt, logit(ids[i])});
    if (context.detokenize) top.back().text = context.detokenize(std::span(&ids[i], 1));
  }
  return top;
}

}  // namespace

std::string pair_id_of(const Condition& c, const PromptItem& prompt, std::int64_t seed) {
  return fmt::format("{}/{}/s{}", c.name(), prompt.id, seed);
}

RecordedPair decode_to_records(Context& context, const Decoder& decoder, const DecodeParams& params, Clock clock,
                               const Condition& condition, const PromptItem& prompt, std::int64_t seed,
                               const RecordedStep& on_step, const PairAids& aids) {
  PairRequest request = make_request(decoder.config(), params, clock, condition, prompt, seed);
  request.planted = context.planted;
  request.activations = aids.activations;
  request.graphs = aids.graphs;
  StepRecord record;
  record.pair_id = pair_id_of(condition, prompt, seed);
  Fingerprinter fingerprinter;
  std::optional<FlipTop> flip_top;
  RecordedPair pair;
  pair.outcome = decode_pair(decoder, request, [&](const StepView& step) {
    put_metrics(metrics_of(step), record);
    record.clock = step.clock;
    record.step = step.step;
    record.same_prefix = step.same_prefix;
    record.token_on = step.token_on;
    record.token_off = step.token_off;
    fingerprinter.add(step);
    // The same-prefix step at which both chose, and otherwise: the flip.
    if (step.clock == Clock::both && step.token_on != step.token_off && step.token_on >= 0 && step.token_off >= 0)
      flip_top = FlipTop{top_of(context, step.logits_on()), top_of(context, step.logits_off())};
    context.sink.add(record);
    on_step(record, step);
  });
  pair.record = pair_record(context, clock, condition, prompt, seed, pair.outcome);
  pair.record.flip_top = std::move(flip_top);
  if (aids.activations != nullptr) pair.record.max_abs_activation = aids.activations->take_max_abs();
  const PairFingerprint seen = fingerprinter.take();
  pair.record.logits_sha256_on = seen.on;
  pair.record.logits_sha256_off = seen.off;
  context.sink.add(pair.record);
  context.sink.commit();
  return pair;
}

}  // namespace kvdiv
