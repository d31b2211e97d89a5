#pragma once
// A report of `run` and a contract as they stand on disk, small, with numbers that can be told apart.
#include <string>

#include "kvdiv/base/json.h"

namespace kvdiv::test {

/// Its numbers are base × 1, 2, 3 … in the order of the keys.
inline Json sample_stat(double base) {
  Json stat = {{"n", 64}, {"n_nonfinite", 0}};
  double factor = 0.0;
  for (const char* key : {"mean", "std", "min", "p1", "p5", "p25", "median", "p75", "p95", "p99", "max"}) stat[key] = base * ++factor;
  stat["ci_low"] = base * 0.5;
  stat["ci_high"] = base * 1.5;
  stat["ci_method"] = "95 % percentile bootstrap by prompt, 2000 resamples";
  return stat;
}

inline Json sample_steps(double base) {
  return {{"n_steps", 64},
          {"flips", 2},
          {"tie_flips", 1},
          {"flip_rate", 2.0 / 64},
          {"bit_equal_rate", 0.125},
          {"kl_on_off_nats", sample_stat(base)},
          {"kl_off_on_nats", sample_stat(base * 1.25)},
          {"js_nats", sample_stat(base * 0.25)},
          {"max_abs_dlogit", sample_stat(base * 1000)},
          {"margin", sample_stat(base * 1e6)}};
}

inline Json sample_condition(const std::string& dtype = "float16", const std::string& backend = "torch", const std::string& strategy = "greedy") {
  return {{"dtype", dtype},         {"backend", backend},
          {"strategy", strategy},   {"n_pairs", 4},
          {"n_prompts", 4},         {"n_seeds", 1},
          {"divergence_rate", 0.5}, {"flip_index", sample_stat(1.0)},
          {"same_prefix", sample_steps(1e-6)}, {"free_running", sample_steps(3e-6)},
          {"n_nonfinite_steps", 0}, {"accuracy", {{"on", 0.5}, {"off", 0.75}, {"diff", -0.25}, {"n", 4}}}};
}

inline Json sample_report() {
  return {{"schema", "kvdiv/report/1"},
          {"complete", true},
          {"tool", {{"version", "0.1.0"}, {"git_commit", "abc"}}},
          {"environment", {{"cpu", "one"}, {"cpu_features", "avx2"}, {"n_threads", 1}, {"env_vars", {{"MKL_CBWR", "AVX2,STRICT"}}}}},
          {"numerics", {{"dtype", {"float16"}}, {"backend", {"torch"}}, {"invariant_kernels", "AVX2"}}},
          {"model", {{"name", "toy-llama"}, {"path", "a"}, {"weights_sha256", "77"}}},
          {"data", {{"source", "gsm8k"}, {"sha256", "feed"}, {"n_prompts", 4}, {"indices", {5, 6, 7, 8}}}},
          {"experiment", {{"name", "run"}, {"params", {{"max_new_tokens", 16}, {"seeds", 1}}}}},
          {"controls",
           {{"on_on_bit_equal", true},
            {"off_off_bit_equal", true},
            {"prefill_bit_equal", true},
            {"order_independent", true},
            {"alignment_independent", true},
            {"n_tokens_computed_on", {{"expected", 9}, {"computed", 9}}},
            {"n_tokens_computed_off", {{"expected", 90}, {"computed", 90}}}}},
          {"conditions", Json::array({sample_condition()})},
          {"verdict", {{"kind", "rounding"}, {"sentence", "It is rounding."}}}};
}

/// One limit, which the sample report keeps exactly: the mean is 1e-6.
inline Json sample_contract() {
  return {{"schema", "kvdiv/contract/1"},
          {"title", "a contract"},
          {"minimum", {{"n_pairs", 4}, {"n_steps", 64}}},
          {"controls", {"on_on_bit_equal", "n_tokens_computed_on"}},
          {"limits", Json::array({{{"dtype", "float16"},
                                   {"clock", "same_prefix"},
                                   {"metric", "kl_on_off_nats"},
                                   {"statistic", "mean"},
                                   {"at_most", 1e-6},
                                   {"reason", "measured so"}}})}};
}

}  // namespace kvdiv::test
