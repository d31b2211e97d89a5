#pragma once
// Equivalent, rounding, bug or invalid: decided by numbers that the sentence names.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common_setup.h"

namespace kvdiv {

/// A divergence that shrinks by this many orders of magnitude from the compute dtype to FP64 is rounding.
inline constexpr double kRoundingOrders = 6.0;

struct VerdictInput {
  std::string condition;
  DType dtype = DType::float16;
  std::int64_t n_steps = 0, flips = 0;
  double bit_equal_rate = 1.0;
  double mean_kl_nats = 0.0, max_abs_dlogit = 0.0;
};

/// The same comparison in FP64 on a sample of the prompts.
struct Fp64Check {
  std::int64_t n_prompts = 0, n_steps = 0;
  double mean_kl_nats = 0.0, max_abs_dlogit = 0.0;
};

template <class V>
void describe_fields(V& v, Fp64Check& c) {
  v.field("n_prompts", c.n_prompts);
  v.field("n_steps", c.n_steps);
  v.field("mean_kl_on_off_nats", c.mean_kl_nats);
  v.field("max_abs_dlogit", c.max_abs_dlogit);
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

}  // namespace kvdiv
