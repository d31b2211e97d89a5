#pragma once
// `kvdiv mitigate`: what makes decoding with a cache agree with recomputing the prefix, and what it costs. The same
// steps under each remedy: KL, flips, speed, bytes, the Pareto front, and how far each is from float64. Then the
// smallest set of operations that must be computed in a fixed order for the arms to agree.
//
// Every remedy is walked along one text: the tokens that ON chose greedily without any remedy. So the steps of all rows
// are the same steps, whatever a remedy would have chosen after a flip of its own.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvdiv/experiments/common_params.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

/// The names of all remedies, with their default arguments: what --remedy takes.
std::vector<std::string> remedy_names();

/// One dtype of 16 bits and one backend: what the remedies are remedies of.
struct MitigateParams : ArithmeticParams {
  std::vector<std::string> remedy = remedy_names();
  std::int64_t max_steps = 16;
  bool ignore_eos = false;
  double max_kl = 0.0;  ///< nats, of the worst step; 0: the same bits
  bool no_search = false;
  std::int64_t max_subsets = 400;
};

template <class V>
void describe_fields(V& v, MitigateParams& p) {
  describe_fields(v, static_cast<ArithmeticParams&>(p));
  v.field("remedy", p.remedy,
          "none, cache-float32, attention-float32, float32-accumulation, invariant, refresh:N, smooth:N:A, "
          "float32-arithmetic, bfloat16, float32, kv-int8, kv-int4, and on a GPU cublaslt-no-split-k, "
          "cublaslt-one-algorithm; "
          "none is always among them (default: all)");
  v.field("max-steps", p.max_steps, "steps of each prompt, along the tokens that ON chooses without a remedy");
  v.field("ignore-eos", p.ignore_eos, "go on after an end-of-sequence token");
  v.field("max-kl", p.max_kl, "limit on KL(on‖off) of every step, in nats; 0 asks for the same bits");
  v.field("no-search", p.no_search, "leave out the search for the smallest set of operations to fix");
  v.field("max-subsets", p.max_subsets,
          "of operations, evaluated to prove that a set is the smallest; more are not tried");
}

/// One remedy on one prompt.
struct MitigateRecord {
  static constexpr std::string_view type = "mitigate";
  std::string pair_id;
  std::string remedy;
  std::int64_t n_steps = 0;
  std::int64_t n_bit_equal = 0;                  ///< steps at which the arms' logits are the same bits
  std::int64_t flips = 0;                        ///< steps whose largest logit is another token's, without tie_flips
  std::int64_t tie_flips = 0;                    ///< such steps where the largest logit of an arm occurs more than once
  double kl_mean_nats = 0.0, kl_max_nats = 0.0;  ///< KL(on‖off)
  double max_abs_dlogit = 0.0;
  /// Steps at which ON's logits are the bits of ON without a remedy; null where the arithmetic is another.
  std::optional<std::int64_t> n_on_as_without;
  std::optional<double> kl_to_fp64_nats;     ///< mean of KL(float64‖off) over the first steps; null for most prompts
  std::optional<double> on_kl_to_fp64_nats;  ///< the same of ON
};

template <class V>
void describe_fields(V& v, MitigateRecord& r) {
  v.field("pair_id", r.pair_id);
  v.field("remedy", r.remedy);
  v.field("n_steps", r.n_steps);
  v.field("n_bit_equal", r.n_bit_equal);
  v.field("flips", r.flips);
  v.field("tie_flips", r.tie_flips);
  v.field("kl_mean_nats", r.kl_mean_nats);
  v.field("kl_max_nats", r.kl_max_nats);
  v.field("max_abs_dlogit", r.max_abs_dlogit);
  v.field("n_on_as_without", r.n_on_as_without);
  v.field("kl_to_fp64_nats", r.kl_to_fp64_nats);
  v.field("on_kl_to_fp64_nats", r.on_kl_to_fp64_nats);
}

void validate(const MitigateParams& params);
/// Throws Error{usage} for a remedy, named one by one, that the device does not have.
void require_remedies(c10::Device device, const MitigateParams& params);

ExperimentResult run_mitigate(Context& context, const MitigateParams& params);

}  // namespace kvdiv
