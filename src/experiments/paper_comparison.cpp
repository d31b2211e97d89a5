// Every published quantity, with what this run measured of it and why the two differ. A quantity is a row of this table, and
// of configs/paper_published.json.
#include <functional>
#include <map>
#include <string>

#include "kvdiv/base/error.h"
#include "paper_measured.h"

namespace kvdiv {
namespace {

using Row = std::function<Measured(const PaperParts&)>;

const std::map<std::string, Row>& table() {
  static const std::map<std::string, Row> rows{
      {"diverged_pairs", diverged_pairs},
      {"kl_greedy", kl_of("greedy")},
      {"kl_top_k", kl_of("top-k")},
      {"kl_top_p", kl_of("top-p")},
      {"kl_trend", kl_trend},
      {"js", js},
      {"accuracy", accuracy},
      {"by_prompt", by_prompt},
      {"drift_llama2", drift},
      {"drift_mistral", drift},
      {"drift_gemma2", drift},
      {"drift_prefill", drift_prefill},
      {"drift_tests", drift_tests},
      {"dot_error", dot_error},
      {"dot_std", dot_std},
      {"propagation", propagation},
      {"projection", projection},
      {"flip_kl", correlations},
      {"fp32_flips", fp32_flips},
      {"fp32_kl", fp32_kl},
      {"fp32_ratio", fp32_ratio},
      {"boundary_r", correlations},
      {"boundary_thirds", thirds},
      {"boundary_partial", partial},
      {"patch_single_median", pooled("single layer", "median")},
      {"patch_single_mean", pooled("single layer", "mean")},
      {"patch_cumulative", pooled("layers 1…l", "mean")},
      {"patch_conclusion", conclusion},
  };
  return rows;
}

}  // namespace

Json paper_comparison(const Json& published, const PaperParts& parts) {
  Json out = Json::array();
  for (const Json& entry : published.at("published")) {
    const auto id = entry.at("id").get<std::string>();
    if (!table().contains(id)) fail(ErrorKind::internal, "paper: nothing computes the published quantity {}", id);
  }
  for (const Json& entry : published.at("published")) {
    const Measured m = table().at(entry["id"].get<std::string>())(parts);
    Json j = entry;
    j["measured"] = m.text.empty() ? Json(nullptr) : Json(m.text);
    j["why"] = m.why;
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace kvdiv
