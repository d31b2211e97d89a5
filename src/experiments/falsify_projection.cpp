#include "falsify_projection.h"

#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>

#include "kvdiv/decode/capture.h"
#include "kvdiv/numerics/ulp.h"
#include "kvdiv/stats/states.h"

namespace kvdiv {
namespace {

struct Tally {
  double max_ulp = 0.0, sum_ulp = 0.0, n_differing = 0.0, n = 0.0, difference2 = 0.0, norm2 = 0.0;

  void add(const at::Tensor& joint, const at::Tensor& single) {
    for (const double d : ulp_distances(joint, single)) {
      max_ulp = std::max(max_ulp, d);
      sum_ulp += d;
      n_differing += d > 0.0;
      n += 1.0;
    }
    const StateDistance d = compare_states(host_logits(single.reshape({-1})), host_logits(joint.reshape({-1})));
    difference2 += d.l2 * d.l2;
    norm2 += d.norm_b * d.norm_b;
  }
  void put(Json& row, const std::string& name) const {
    row[name + "_max_ulp"] = max_ulp;
    row[name + "_mean_ulp"] = sum_ulp / n;
    row[name + "_differing_rate"] = n_differing / n;
    row[name + "_rel_l2"] = norm2 > 0.0 ? Json(std::sqrt(difference2 / norm2)) : Json(nullptr);
  }
};

/// One row at a time, put together again.
at::Tensor token_by_token(const Ops& ops, const at::Tensor& x_BTC, const Matrix& w) {
  std::vector<at::Tensor> rows;
  for (std::int64_t t = 0; t < x_BTC.size(1); ++t) rows.push_back(ops.linear(x_BTC.narrow(1, t, 1), w));
  return at::cat(rows, 1);
}

}  // namespace

Json projection_rows(LoadedModel& model, const Ops& ops, std::span<const PromptItem> prompts) {
  const c10::InferenceMode inference;
  std::map<std::string, Matrix> weights;
  for (const NamedWeight& w : model.decoder.weights()) weights[w.name] = w.matrix();
  const auto n_layers = model.decoder.config().sizes.n_layers;
  std::vector<std::pair<Tally, Tally>> tallies(static_cast<std::size_t>(n_layers));
  for (const PromptItem& prompt : prompts) {
    CaptureTap tap([](Site site, std::int64_t) { return site == Site::attention_norm; });
    model.decoder.forward(prompt.ids, nullptr, &tap);
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
      const at::Tensor& x_BTC = tap.at(Site::attention_norm, layer);
      auto& [k, v] = tallies[static_cast<std::size_t>(layer)];
      const auto compare = [&](Tally& tally, const char* name) {
        const Matrix& w = weights.at(fmt::format("model.layers.{}.self_attn.{}.weight", layer, name));
        tally.add(ops.linear(x_BTC, w), token_by_token(ops, x_BTC, w));
      };
      compare(k, "k_proj");
      compare(v, "v_proj");
    }
  }
  Json rows = Json::array();
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    Json row = {{"layer", i + 1}};
    tallies[i].first.put(row, "k");
    tallies[i].second.put(row, "v");
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kvdiv
