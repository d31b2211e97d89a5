#pragma once
// The records of records.jsonl: one struct a type, its fields listed once. Experiments fill them, report/ writes and reads
// them, stats/ summarises them. Nothing that changes from run to run (times, hosts, threads) is in them.
// Units are in the names: _nats; logits are in the model's own units. A non-finite number is written as null.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

struct PairRecord {
  std::string pair_id;    ///< unique in the file, the same in every run
  std::string condition;  ///< "float16/torch/greedy"
  std::string prompt_id;
  std::string prompt_sha256;  ///< of the token ids, little-endian int64
  std::int64_t n_prompt_tokens = 0;
  std::int64_t seed = 0;
  std::vector<TokenId> tokens_on, tokens_off;  ///< generated ids; an EOS is the last one. OFF: its own tokens
  std::optional<std::string> text_on, text_off;
  std::string finish_on, finish_off;       ///< "eos", "length" or "nonfinite"
  std::optional<std::int64_t> flip_index;  ///< first step at which the arms chose different tokens
  bool diverged = false;
  std::optional<std::string> answer_on, answer_off, gold;
  std::optional<bool> correct_on, correct_off;
};

template <class V>
void describe_fields(V& v, PairRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("condition", r.condition);
  v.field("prompt_id", r.prompt_id);
  v.field("prompt_sha256", r.prompt_sha256);
  v.field("n_prompt_tokens", r.n_prompt_tokens);
  v.field("seed", r.seed);
  v.field("tokens_on", r.tokens_on);
  v.field("tokens_off", r.tokens_off);
  v.field("text_on", r.text_on);
  v.field("text_off", r.text_off);
  v.field("finish_on", r.finish_on);
  v.field("finish_off", r.finish_off);
  v.field("flip_index", r.flip_index);
  v.field("diverged", r.diverged);
  v.field("answer_on", r.answer_on);
  v.field("answer_off", r.answer_off);
  v.field("gold", r.gold);
  v.field("correct_on", r.correct_on);
  v.field("correct_off", r.correct_off);
}

struct StepRecord {
  std::string pair_id;
  Clock clock = Clock::both;  ///< up to the flip one record serves both clocks
  std::int64_t step = 0;
  bool same_prefix = true;
  TokenId token_on = 0, token_off = 0;  ///< what each arm chose from these logits
  double kl_on_off_nats = 0.0, kl_off_on_nats = 0.0, js_nats = 0.0;
  double max_abs_dlogit = 0.0;
  bool bit_equal = false, top1_equal = false;
  double margin_on = 0.0, margin_off = 0.0;  ///< top-1 minus top-2 logit
  bool tie_on = false, tie_off = false;      ///< the largest logit occurs more than once
  std::int64_t n_nonfinite = 0;              ///< NaN or infinite logits, both arms
};

template <class V>
void describe_fields(V& v, StepRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("clock", r.clock);
  v.field("step", r.step);
  v.field("same_prefix", r.same_prefix);
  v.field("token_on", r.token_on);
  v.field("token_off", r.token_off);
  v.field("kl_on_off_nats", r.kl_on_off_nats);
  v.field("kl_off_on_nats", r.kl_off_on_nats);
  v.field("js_nats", r.js_nats);
  v.field("max_abs_dlogit", r.max_abs_dlogit);
  v.field("bit_equal", r.bit_equal);
  v.field("top1_equal", r.top1_equal);
  v.field("margin_on", r.margin_on);
  v.field("margin_off", r.margin_off);
  v.field("tie_on", r.tie_on);
  v.field("tie_off", r.tie_off);
  v.field("n_nonfinite", r.n_nonfinite);
}

}  // namespace kvdiv
