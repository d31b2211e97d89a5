// Tables of `trace` and `noise`.
#include <utility>

#include "render_specs.h"

namespace kvdiv {
namespace {

std::vector<Column> kv_errors(std::vector<Column> columns) {
  for (const auto& [header, path] : {std::pair{"K ON/OFF", "k_on_off"}, std::pair{"V ON/OFF", "v_on_off"}})
    columns.push_back({header, path, Cell::mean_ci});
  for (const auto& [header, path] :
       {std::pair{"K ON/FP64", "k_on_fp64.mean"}, std::pair{"K OFF/FP64", "k_off_fp64.mean"},
        std::pair{"V ON/FP64", "v_on_fp64.mean"}, std::pair{"V OFF/FP64", "v_off_fp64.mean"}})
    columns.push_back({header, path});
  return columns;
}

bool of_all_positions(const Json& row) { return row["positions"] == "all"; }
bool of_all_layers(const Json& row) { return row["layer"] == "all"; }

}  // namespace

std::vector<TableSpec> trace_tables() {
  return {
      {"errors of K and V, ‖a − b‖/‖b‖ by head and position; means over prompts", "kv",
       kv_errors({{"step", "step", Cell::text}, {"positions", "positions", Cell::text}})},
      {"the same by layer, all positions", "kv_by_layer",
       kv_errors({{"step", "step", Cell::text}, {"layer", "layer", Cell::text}}), "", 0, of_all_positions},
      {"KV heads of the largest ON/OFF error of K", "kv_by_head",
       kv_errors({{"step", "step", Cell::text}, {"layer", "layer", Cell::text}, {"KV head", "kv_head", Cell::text}}),
       "k_on_off.mean", 6, of_all_positions},
      {"growth over steps: slope of log10 of the error per step",
       "growth",
       {{"quantity", "quantity", Cell::text},
        {"of positions", "of", Cell::text},
        {"slope [95 %]", "slope", Cell::value_ci},
        {"steps without error", "n_zero_steps", Cell::count},
        {"prompts", "n_prompts", Cell::count}},
       "",
       0,
       of_all_layers},
      {"where it is born: equal inputs, other outputs",
       "births_by_operation",
       {{"operation", "operation", Cell::text},
        {"first of the step", "natural_rate", Cell::percent},
        {"born here", "born_rate", Cell::percent},
        {"differs on OFF's inputs", "isolated_rate", Cell::value_ci},
        {"by ‖Δ‖/‖x‖", "isolated_rel_l2.mean"},
        {"max |Δ|", "isolated_max_abs"}}},
      {"the first of all in a step",
       "first_born",
       {{"operation", "operation", Cell::text},
        {"layer", "layer", Cell::text},
        {"times", "n", Cell::count},
        {"share", "rate", Cell::percent}}},
      {"GQA: noise on shared K/V against a copy of K/V per query head",
       "gqa",
       {{"R", "R", Cell::text},
        {"KV heads", "n_kv_heads", Cell::text},
        {"made by", "source", Cell::text},
        {"amplification", "amplification", Cell::value_ci},
        {"at most √R", "sqrt_r"},
        {"one layer", "amplification_one_layer", Cell::value_ci},
        {"correlation, shared", "corr_shared", Cell::value_ci},
        {"others", "corr_other", Cell::value_ci}}},
      {"GQA: correlation of ON − OFF between query heads",
       "gqa_real",
       {{"difference", "difference", Cell::text},
        {"shared KV head", "corr_shared", Cell::value_ci},
        {"others", "corr_other", Cell::value_ci}}}};
}

std::vector<TableSpec> noise_tables() {
  return {
      {"size of the noise (‖Δ‖/‖x‖, as stored) at which steps, or texts, flip, in itself and against FP16's own error",
       "thresholds",
       {{"noise", "kind", Cell::text},
        {"on", "what", Cell::text},
        {"per", "per", Cell::text},
        {"flips", "level", Cell::percent},
        {"relative size", "size", Cell::value_ci},
        {"× FP16 computed", "in_fp16_computed", Cell::value_ci},
        {"× FP16 stored", "in_fp16_stored", Cell::value_ci},
        {"no number because", "size.reason", Cell::text}}},
      {"flips against size, K and V together",
       "curve",
       {{"noise", "kind", Cell::text},
        {"size", "size"},
        {"bits", "mantissa_bits", Cell::text},
        {"size as stored", "relative_size_stored"},
        {"steps that flip", "flip_rate", Cell::value_ci},
        {"texts that flip", "text_flip_rate", Cell::value_ci},
        {"KL mean, nats", "kl_mean_nats", Cell::value_ci},
        {"max |Δlogit|", "max_abs_dlogit"}},
       "",
       0,
       [](const Json& row) { return row["what"] == "kv"; }},
      {"FP16's own error of K and V",
       "fp16_own_size",
       {{"error", "error", Cell::text},
        {"of", "what", Cell::text},
        {"‖Δ‖/‖x‖", "relative_size", Cell::value_ci},
        {"RMS by element", "relative_rms"},
        {"steps that flip", "flip_rate", Cell::value_ci},
        {"texts that flip", "text_flip_rate", Cell::value_ci}}}};
}

}  // namespace kvdiv
