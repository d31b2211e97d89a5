// What the text of each experiment shows of its conditions.
#include <map>

#include "render_specs.h"

namespace kvdiv {
namespace {

std::vector<TableSpec> drift_tables() {
  return {{"residual stream, ON against OFF, by layer (means over prompts; 0: embeddings)",
           "by_layer",
           {{"layer", "layer", Cell::text},
            {"prompts that differ", "differing_rate", Cell::percent},
            {"L2", "l2", Cell::mean_ci},
            {"L2/norm", "rel_l2.mean"},
            {"cosine", "cosine.mean"},
            {"max |Δ|", "max_abs.max"},
            {"L2/norm without the 3 largest dims", "rel_l2_trimmed.mean"},
            {"× layer before", "amplification"},
            {"Mann–Whitney, adjusted p", "against_layer_before", Cell::test}}},
          {"attention weights of the newest token, KL(on‖off) in nats by head",
           "by_head",
           {{"layer", "layer", Cell::text},
            {"head", "head", Cell::text},
            {"KV head", "kv_head", Cell::text},
            {"KL mean [95 %]", "kl_on_off_nats", Cell::mean_ci},
            {"max |Δ weight|", "max_abs.max"}},
           "kl_on_off_nats.mean",
           6}};
}

std::vector<TableSpec> patch_tables() {
  const Column share{"share of mean KL removed, %", "pct_of_mean", Cell::value_ci};
  return {{"what the difference is made of, at the patched step (100 %: nothing remains; 95 % intervals by prompt)",
           "parts",
           {{"step", "step", Cell::text},
            {"direction", "direction", Cell::text},
            {"patched", "what", Cell::text},
            {"positions", "positions", Cell::text},
            {"layers", "layers", Cell::text},
            {"KV heads", "heads", Cell::text},
            {"KL before, nats", "kl_base_nats"},
            {"KL left", "kl_patched_nats"},
            share,
            {"median of prompts", "pct_median", Cell::value_ci},
            {"bit-equal", "bit_equal_rate", Cell::percent}},
           "",
           0,
           [](const Json& row) { return row["step"] != 0; }},
          {"by layer: share of the mean KL removed, %",
           "by_layer",
           {{"step", "step", Cell::text},
            {"layer", "layer", Cell::text},
            {"K", "k", Cell::value_ci},
            {"V", "v", Cell::value_ci},
            {"K and V", "kv", Cell::value_ci},
            {"residual", "residual", Cell::value_ci},
            {"residual 1…l", "residual_up_to", Cell::value_ci}},
           "",
           0,
           [](const Json& row) { return row["step"] != 0 && row["direction"] == "off_into_on"; }},
          {"by KV head, all layers: share of the mean KL removed, %",
           "by_head",
           {{"step", "step", Cell::text},
            {"KV head", "kv_head", Cell::text},
            {"K", "k", Cell::value_ci},
            {"V", "v", Cell::value_ci},
            {"K and V", "kv", Cell::value_ci}}},
          {"decay: a patch of ON's cache stays; what it still removes so many steps later",
           "decay",
           {{"step", "step", Cell::text},
            {"patched", "what", Cell::text},
            {"steps later", "steps_later", Cell::text},
            share}},
          {"published protocol: ON's block output into OFF at one step; % of the KL of the whole text, over prompts × "
           "layers",
           "published_pooled",
           {{"step", "step", Cell::text},
            {"set", "set", Cell::text},
            {"values", "n_values", Cell::count},
            {"median recovery, %", "median", Cell::value_ci},
            {"mean recovery, %", "mean", Cell::value_ci}}}};
}

}  // namespace

const std::vector<TableSpec>& condition_tables(const std::string& experiment) {
  static const std::map<std::string, std::vector<TableSpec>> tables{
      {"drift", drift_tables()},       {"falsify", falsify_tables()},   {"noise", noise_tables()},
      {"trace", trace_tables()},       {"boundary", boundary_tables()}, {"shapes", shapes_tables()},
      {"mitigate", mitigate_tables()},

      {"patch", patch_tables()}};
  static const std::vector<TableSpec> none;
  const auto it = tables.find(experiment);
  return it == tables.end() ? none : it->second;
}

}  // namespace kvdiv
