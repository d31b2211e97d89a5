#include "kvdiv/experiments/shapes.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/interrupt.h"
#include "kvdiv/numerics/algorithms.h"
#include "shapes_probes.h"

namespace kvdiv {
namespace {

constexpr std::string_view kAten = "ATen ";  // what the names of its own functions begin with

bool is_aten(const Json& row) { return row["operation"].get<std::string>().starts_with(kAten); }

/// The rows of the backend's own operations that have an onset.
std::vector<const Json*> changing(const Json& condition) {
  std::vector<const Json*> out;
  for (const Json& row : condition["shapes"])
    if (!row["onset"].is_null() && !is_aten(row)) out.push_back(&row);
  return out;
}

/// "float16/torch: 5 of the backend's 14 rows change bits, the first linear lm_head from 2 rows on".
std::string sentence_of(const Json& condition) {
  const auto rows = changing(condition);
  std::string out =
      fmt::format("{}/{}: ", condition["dtype"].get<std::string>(), condition["backend"].get<std::string>());
  std::string of_aten;
  std::size_t n_own = 0;
  for (const Json& row : condition["shapes"]) {
    n_own += !is_aten(row);
    if (is_aten(row) && !row["onset"].is_null())
      of_aten += (of_aten.empty() ? "" : ", ") + row["operation"].get<std::string>().substr(kAten.size());
  }
  if (rows.empty()) {
    out += "the same bits at every shape tried";
  } else {
    const Json& first = **std::min_element(rows.begin(), rows.end(),
                                           [](const Json* a, const Json* b) { return (*a)["onset"] < (*b)["onset"]; });
    const std::string axis = first["axis"].get<std::string>();
    out += fmt::format("{} of the backend's {} rows change bits, the first {} from {} {} on", rows.size(), n_own,
                       first["operation"].get<std::string>(), first["onset"].get<std::int64_t>(),
                       axis == "length" ? "elements" : axis);
  }
  if (!of_aten.empty()) out += fmt::format(" (of ATen's functions {} depend on the length of a row)", of_aten);
  return out;
}

Json verdict_of(const Json& conditions) {
  std::string sentence;
  bool is_invariant = true;
  for (const Json& c : conditions) {
    sentence += (sentence.empty() ? "" : "; ") + sentence_of(c);
    is_invariant = is_invariant && changing(c).empty();
  }
  return {{"kind", is_invariant ? "invariant" : "shape_dependent"}, {"sentence", sentence + "."}};
}

}  // namespace

void validate(const ShapesParams& params) {
  validate(static_cast<const ArithmeticParams&>(params));
  if (params.operation.empty()) fail_usage("--operation: the list is empty");
  if (params.max_rows < 2)
    fail_usage("--max-rows: {} is less than 2: one row is what is compared with", params.max_rows);
}

ExperimentResult run_shapes(Context& context, const ShapesParams& params) {
  validate(params);
  const c10::InferenceMode inference;
  ExperimentResult result;
  for (const DType dtype : params.dtype)
    for (const std::string& backend : params.backend) {
      if (interrupted()) return result;
      context.progress.stage(fmt::format("{}/{}", name_of(dtype), backend));
      const auto ops = make_ops(backend, params.attention, context.device);
      Json condition = {{"dtype", name_of(dtype)}, {"backend", backend}, {"row_invariant", ops->row_invariant()}};
      condition["shapes"] =
          shape_rows(shape_probes(*ops, context.config, dtype, params, {context.device, backend == "torch"}));
      if (ops->row_invariant()) {
        const bool held = result.controls.value("invariance_holds", true);
        result.controls["invariance_holds"] = held && changing(condition).empty();
      }
      if (const Json choices = algorithms_of(*ops); !choices.is_null()) condition["algorithms"] = choices;
      context.progress.end_stage();
      result.conditions.push_back(std::move(condition));
      context.sink.checkpoint(result);
    }
  result.verdict = verdict_of(result.conditions);
  result.complete = true;
  return result;
}

}  // namespace kvdiv
