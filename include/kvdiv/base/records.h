#pragma once
// The records of records.jsonl: one struct a type, its fields listed once. Experiments fill them, report/ writes and reads
// them, stats/ summarises them. Nothing that changes from run to run (times, hosts, threads) is in them.
// Units are in the names: _nats; logits are in the model's own units. A non-finite number is written as null.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/base/pair_facts.h"

namespace kvdiv {

struct TopToken {
  TokenId id = 0;
  std::optional<std::string> text;
  double logit = 0.0;
};

template <class V>
void describe_fields(V& v, TopToken& t) {
  v.field("id", t.id);
  v.field("text", t.text);
  v.field("logit", t.logit);
}

/// What each arm had to choose from at the flip: the largest logits, the largest first, the lowest id first on a tie.
struct FlipTop {
  std::vector<TopToken> on, off;
};

template <class V>
void describe_fields(V& v, FlipTop& f) {
  v.field("on", f.on);
  v.field("off", f.off);
}

struct PairRecord {
  static constexpr std::string_view type = "pair";
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
  // What the controls and the condition need beside the tokens, so that a run is a function of its records. An older
  // writer's records lack these keys.
  TokenCount n_tokens_computed_on, n_tokens_computed_off;
  std::optional<NonfiniteStop> nonfinite;
  std::optional<std::vector<double>> max_abs_activation;  ///< 0: embeddings, 1…L, L+1: final norm; both arms; FP16 only
  /// Of each arm's logits of the first 16 same-prefix steps, in the compute dtype: equal hashes are equal bits.
  std::string logits_sha256_on, logits_sha256_off;
  std::optional<FlipTop> flip_top;  ///< null without a flip
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
  v.field("n_tokens_computed_on", r.n_tokens_computed_on);
  v.field("n_tokens_computed_off", r.n_tokens_computed_off);
  v.field("nonfinite", r.nonfinite);
  v.field("max_abs_activation", r.max_abs_activation);
  v.field("logits_sha256_on", r.logits_sha256_on);
  v.field("logits_sha256_off", r.logits_sha256_off);
  v.field("flip_top", r.flip_top);
}

struct StepRecord {
  static constexpr std::string_view type = "step";
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

/// A pair as it stands in records.jsonl: its steps, then the pair.
struct FinishedPair {
  std::vector<StepRecord> steps;
  PairRecord pair;
};

/// How far two states of the residual stream are apart. "trimmed": without the three dimensions that are largest in OFF,
/// because a few massive dimensions can hide, or make, everything that a norm shows.
struct LayerRecord {
  static constexpr std::string_view type = "layer";
  std::string pair_id;
  std::int64_t step = 0;
  Json layer = 0;  ///< 0: embeddings; 1 … L: block outputs, before the next norm; "norm": after the final norm
  TokenId token_on = 0, token_off = 0;             ///< the newest token of each arm: its state is what is compared
  std::int64_t position_on = 0, position_off = 0;  ///< and where it stands
  double l2 = 0.0;                                 ///< ‖on − off‖₂
  std::optional<double> rel_l2;                    ///< l2 / ‖off‖₂; null for a zero state
  std::optional<double> cosine;                    ///< null for a zero state
  double max_abs = 0.0;                            ///< max |on − off|
  double norm_on = 0.0, norm_off = 0.0;
  double l2_trimmed = 0.0;
  std::optional<double> rel_l2_trimmed, cosine_trimmed;
  double max_abs_trimmed = 0.0;
};

template <class V>
void describe_fields(V& v, LayerRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("step", r.step);
  v.field("layer", r.layer);
  v.field("token_on", r.token_on);
  v.field("token_off", r.token_off);
  v.field("position_on", r.position_on);
  v.field("position_off", r.position_off);
  v.field("l2", r.l2);
  v.field("rel_l2", r.rel_l2);
  v.field("cosine", r.cosine);
  v.field("max_abs", r.max_abs);
  v.field("norm_on", r.norm_on);
  v.field("norm_off", r.norm_off);
  v.field("l2_trimmed", r.l2_trimmed);
  v.field("rel_l2_trimmed", r.rel_l2_trimmed);
  v.field("cosine_trimmed", r.cosine_trimmed);
  v.field("max_abs_trimmed", r.max_abs_trimmed);
}

struct HeadRecord {
  static constexpr std::string_view type = "head";
  std::string pair_id;
  std::int64_t step = 0, layer = 0;    ///< layer 1 … L
  std::int64_t head = 0, kv_head = 0;  ///< query head, and the key/value head that serves it; from 0
  double kl_on_off_nats = 0.0;         ///< of the attention weights of the newest token, both as stored
  double max_abs = 0.0;                ///< largest difference of a weight
};

template <class V>
void describe_fields(V& v, HeadRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("step", r.step);
  v.field("layer", r.layer);
  v.field("head", r.head);
  v.field("kv_head", r.kv_head);
  v.field("kl_on_off_nats", r.kl_on_off_nats);
  v.field("max_abs", r.max_abs);
}

/// One patch, seen at the patched step (offset 0) or so many steps later.
struct PatchRecord {
  static constexpr std::string_view type = "patch";
  std::string pair_id;
  std::string what;                                ///< "residual", "k", "v", "kv", "all", "random"
  std::int64_t step = 0;                           ///< the patched step
  std::int64_t offset = 0;                         ///< steps after it at which the KL is taken
  std::vector<std::int64_t> layers;                ///< 1 … L
  std::optional<std::vector<std::int64_t>> heads;  ///< KV heads from 0; null: all
  std::string positions;                           ///< "all", "prompt", "generated", "newest"
  std::string direction;                           ///< "on_into_off", "off_into_on"
  double kl_base_nats = 0.0;                       ///< KL(on‖off) of the step without the patch
  double kl_patched_nats = 0.0;                    ///< with it
  std::optional<double> pct_recovered;  ///< (base − patched)/base · 100; null where the base is below 1e-12 nats
  bool bit_equal = false;               ///< patched logits are the other arm's, bit for bit
};

template <class V>
void describe_fields(V& v, PatchRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("what", r.what);
  v.field("step", r.step);
  v.field("offset", r.offset);
  v.field("layers", r.layers);
  v.field("heads", r.heads);
  v.field("positions", r.positions);
  v.field("direction", r.direction);
  v.field("kl_base_nats", r.kl_base_nats);
  v.field("kl_patched_nats", r.kl_patched_nats);
  v.field("pct_recovered", r.pct_recovered);
  v.field("bit_equal", r.bit_equal);
}

}  // namespace kvdiv
