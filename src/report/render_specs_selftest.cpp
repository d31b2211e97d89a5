// Tables of `selftest`, and of the signatures in `paper`.
#include "render_specs.h"

namespace kvdiv {

std::vector<TableSpec> selftest_tables() {
  return {
      {"what was planted, and what it was named",
       "matrix",
       {{"model", "model", Cell::text},
        {"planted", "planted", Cell::text},
        {"named", "named", Cell::text},
        {"right", "ok", Cell::text},
        {"dtype", "dtype", Cell::text},
        {"backend", "backend", Cell::text},
        {"step", "where.step", Cell::text},
        {"layer", "where.layer", Cell::text},
        {"operation", "where.operation", Cell::text}}},
      {"signatures: what a run reports of each (same-prefix and free-running KL in nats; what each becomes in float32)",
       "matrix",
       {{"model", "model", Cell::text},
        {"planted", "planted", Cell::text},
        {"dtype", "dtype", Cell::text},
        {"KL same prefix", "signature.same_prefix_kl_nats"},
        {"KL free", "signature.free_running_kl_nats"},
        {"flips", "signature.flips", Cell::percent},
        {"flip index", "signature.flip_index"},
        {"drift layer 1", "signature.first_layer_drift"},
        {"float32 KL", "signature.float32.same_prefix_kl_nats"},
        {"flips", "signature.float32.flips", Cell::percent}}},
      {"named wrongly",
       "confusion",
       {{"planted", "planted", Cell::text}, {"named", "named", Cell::text}, {"rows", "n", Cell::count}}},
      {"not planted",
       "not_applicable",
       {{"model", "model", Cell::text}, {"fault", "planted", Cell::text}, {"reason", "reason", Cell::text}}}};
}

std::vector<TableSpec> signature_tables() {
  return {{"orders of magnitude between the published numbers and each signature on this model (root mean square)",
           "rows",
           {{"planted", "symptom", Cell::text},
            {"FP16 numbers alone", "distance_float16"},
            {"with FP32", "distance"},
            {"KL", "kl_float16"},
            {"pairs that differ", "diverged_float16"},
            {"FP32 KL", "kl_float32"},
            {"FP32 pairs that differ", "diverged_float32"}}}};
}

}  // namespace kvdiv
