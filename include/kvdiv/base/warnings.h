#pragma once
// Warnings are a closed list: a case here, its code and its remedy in warnings.cpp, the occasion's words at the call.
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

enum class WarningCode {
  greedy_seeds_collapsed,
  no_tokenizer,
  sliding_window_default,
  head_differs_from_embedding,
  rope_theta_conflict,
  unknown_config_keys,
  cast_overflow,
  cast_flushed_to_zero,
  ties,
  nonfinite_logits,
  few_prompts,
  default_model,
  missing_gold_answers,
  fp64_check_skipped,
  busy_machine,
  source_incomplete,
  source_invalid,
  unlike_environments,
  all_warnings_end,  ///< not a warning: the number of the cases above
};

struct Warning {
  std::string code;     ///< snake_case, stable
  std::string message;  ///< what was seen, with its numbers
  std::string remedy;   ///< what the user can do
};

template <class V>
void describe_fields(V& v, Warning& w) {
  v.field("code", w.code);
  v.field("message", w.message);
  v.field("remedy", w.remedy);
}

std::string_view code_of(WarningCode code);
std::string_view remedy_of(WarningCode code);

/// Collects warnings in the order of their first occurrence; the same code with the same message is kept once.
class Warnings {
 public:
  void add(WarningCode code, std::string message);
  /// One that another report holds.
  void keep(Warning warning);
  const std::vector<Warning>& all() const { return all_; }

 private:
  std::vector<Warning> all_;
};

}  // namespace kvdiv
