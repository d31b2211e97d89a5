// Tables of `mitigate`.
#include "render_specs.h"

namespace kvdiv {

std::vector<TableSpec> mitigate_tables() {
  return {{"what each remedy buys (KL in nats; to float64: of the recomputed prefix, KL(float64‖off))",
           "remedies",
           {{"remedy", "remedy", Cell::text},
            {"KL(on‖off) mean [95 %]", "kl_on_off_nats", Cell::mean_ci},
            {"max", "kl_on_off_nats.max"},
            {"× none", "kl_to_none"},
            {"flips", "flips", Cell::count},
            {"bit-equal", "bit_equal_rate", Cell::percent},
            {"max |Δlogit|", "max_abs_dlogit.max"},
            {"ON as without", "on_as_without_rate", Cell::percent},
            {"KL to float64", "kl_to_fp64_nats.mean"},
            {"of ON", "on_kl_to_fp64_nats.mean"}}},
          {"and what it costs (prefill included; bytes computed, at the longest text; speeds within 5 % are the same)",
           "remedies",
           {{"remedy", "remedy", Cell::text},
            {"ON tokens/s", "on_tokens_per_s"},
            {"× none", "on_speed_to_none"},
            {"OFF tokens/s", "off_tokens_per_s"},
            {"weights, bytes", "weights_bytes", Cell::count},
            {"cache", "cache_bytes", Cell::count},
            {"peak", "peak_bytes", Cell::count},
            {"within the limit", "meets_limit", Cell::text},
            {"Pareto front", "on_pareto_front", Cell::text}}},
          {"one operation left as it is, all others fixed: what it contributes by itself",
           "search.alone",
           {{"operation", "operation", Cell::text},
            {"KL mean", "kl_mean_nats"},
            {"KL max", "kl_max_nats"},
            {"bit-equal", "bit_equal_rate", Cell::percent},
            {"must be fixed", "necessary", Cell::text}}},
          {"how the smallest set was searched",
           "search.trail",
           {{"phase", "phase", Cell::text},
            {"what", "what", Cell::text},
            {"fixed", "fixed", Cell::text},
            {"KL mean", "kl_mean_nats"},
            {"KL max", "kl_max_nats"},
            {"within the limit", "meets_limit", Cell::text},
            {"sets evaluated", "n_evaluated", Cell::count}}}};
}

}  // namespace kvdiv
