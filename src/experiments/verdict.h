#pragma once
// Equivalent, rounding, bug or invalid: decided by numbers that the sentence names.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common_diagnosis.h"
#include "common_setup.h"

namespace kvdiv {

/// A divergence that shrinks by this many orders of magnitude from the compute dtype to FP64 is rounding.
inline constexpr double kRoundingOrders = 6.0;
/// Unless logits still move by more than this in FP64: its own rounding moves them by some 1e-12, and a small fault beside a
/// large rounding must not pass for a part of it.
inline constexpr double kFp64DLogit = 1e-7;

struct VerdictInput {
  std::string condition;
  DType dtype = DType::float16;
  std::int64_t n_steps = 0, flips = 0;
  double bit_equal_rate = 1.0;
  double mean_kl_nats = 0.0, max_abs_dlogit = 0.0;
};

/// A pair decoded again in FP64, along ON's tokens there.
struct Fp64Pair {
  std::string pair;   ///< "torch/greedy/gsm8k-5/s0"
  std::string group;  ///< "torch/greedy": what is averaged together
  std::int64_t n_steps = 0;
  double mean_kl_nats = 0.0, max_abs_dlogit = 0.0;
};

template <class V>
void describe_fields(V& v, Fp64Pair& p) {
  v.field("pair", p.pair);
  v.field("group", p.group);
  v.field("n_steps", p.n_steps);
  v.field("mean_kl_on_off_nats", p.mean_kl_nats);
  v.field("max_abs_dlogit", p.max_abs_dlogit);
}

/// The same comparison in FP64 on the pairs that differed most.
struct Fp64Check {
  std::int64_t n_pairs = 0, n_steps = 0;
  double mean_kl_nats = 0.0, max_abs_dlogit = 0.0;
  std::vector<Fp64Pair> pairs = {};
};

template <class V>
void describe_fields(V& v, Fp64Check& c) {
  v.field("n_pairs", c.n_pairs);
  v.field("n_steps", c.n_steps);
  v.field("mean_kl_on_off_nats", c.mean_kl_nats);
  v.field("max_abs_dlogit", c.max_abs_dlogit);
  v.field("pairs", c.pairs);
}

struct Verdict {
  std::string kind;  ///< "equivalent", "rounding", "bug", "invalid"; "undecided" where FP64 could not be run
  std::string sentence;
};

template <class V>
void describe_fields(V& v, Verdict& verdict) {
  v.field("kind", verdict.kind);
  v.field("sentence", verdict.sentence);
}

/// `problems`: controls that failed and conditions that met non-finite logits; any makes the run invalid.
Verdict decide(std::span<const VerdictInput> conditions, const std::optional<Fp64Check>& fp64,
               std::span<const std::string> problems);

/// The verdict as it stands in the report, with `where` {step, layer, operation, arm} and `nearest` {symptom,
/// distance_nats, evidence, compared_to}; `diagnosis` says both, and ends the sentence. `nearest` is null where no known symptom fits and none
/// was simulated.
Json with_diagnosis(const Verdict& bug, const Diagnosis& diagnosis);

/// The same with the diagnosis that another verdict holds: of a shard.
Json with_diagnosis(const Verdict& bug, const Json& diagnosed);

}  // namespace kvdiv
