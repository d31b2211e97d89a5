#pragma once
// `kvdiv selftest`: known faults are planted one at a time, and healthy runs are looked at; every one must be named.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct SelftestParams {
  std::vector<DType> dtype{DType::float16, DType::bfloat16, DType::float32};
  std::vector<std::string> backend{"torch", "invariant"};
  std::int64_t prompt_tokens = 64;
  std::int64_t max_steps = 8;
};

template <class V>
void describe_fields(V& v, SelftestParams& p) {
  v.field("dtype", p.dtype, "of the healthy runs; faults are planted in the first");
  v.field("backend", p.backend, "of the healthy runs; faults are planted in the first; may be repeated");
  v.field("prompt-tokens", p.prompt_tokens, "tokens that each prompt is cut to; a window must be shorter to be tested");
  v.field("max-steps", p.max_steps, "tokens decoded behind each prompt");
}

/// Throws Error{usage}.
void validate(const SelftestParams& params);

/// A model to plant faults in.
struct SelftestModel {
  std::string name;
  const ModelConfig& config;
  std::span<const PromptItem> prompts;
  std::function<LoadedModel(DType, const std::string& backend, const std::string& attention)> load;
};

/// The report's keys: `matrix` [{model, planted, named, ok, signature, …}], `not_applicable` [{model, planted,
/// reason}], `confusion` [{planted, named, n}] of the rows that are wrong. The verdict is "holds" or "violated".
/// `context` gives sink, warnings and progress; its model and prompts are not used.
ExperimentResult run_selftest(Context& context, std::span<const SelftestModel> models, const SelftestParams& params);

}  // namespace kvdiv
