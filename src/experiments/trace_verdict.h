#pragma once
// What a trace says in a sentence, and the controls without which it says nothing.
#include <optional>

#include "kvdiv/base/json.h"

namespace kvdiv {

struct TraceControls {
  bool prefill_bit_equal = true;
  bool tap_changes_no_bit = true;            ///< a captured step gives the logits of the step that nobody looked at
  bool isolated_all_equal_gives_off = true;  ///< ON's step with OFF's value behind every operation gives OFF's logits
  std::optional<bool>
      gqa_copies_are_the_function;  ///< a copy of K/V for each query head changes no logit; null: not run
  std::optional<bool> gqa_attention_is_the_models;  ///< a layer's attention computed alone is the model's own
  std::optional<double> gqa_copies_max_rel, gqa_attention_max_rel;  ///< largest relative differences of both

  bool all_hold() const {
    return prefill_bit_equal && tap_changes_no_bit && isolated_all_equal_gives_off &&
           gqa_copies_are_the_function.value_or(true) && gqa_attention_is_the_models.value_or(true);
  }
};

template <class V>
void describe_fields(V& v, TraceControls& c) {
  v.field("prefill_bit_equal", c.prefill_bit_equal);
  v.field("tap_changes_no_bit", c.tap_changes_no_bit);
  v.field("isolated_all_equal_gives_off", c.isolated_all_equal_gives_off);
  v.field("gqa_copies_are_the_function", c.gqa_copies_are_the_function);
  v.field("gqa_attention_is_the_models", c.gqa_attention_is_the_models);
  v.field("gqa_copies_max_rel", c.gqa_copies_max_rel);
  v.field("gqa_attention_max_rel", c.gqa_attention_max_rel);
}

/// {kind, sentence}. "born": some operation makes different outputs of equal inputs; "none": no operation does, at any
/// traced step; "invalid".
Json trace_verdict(const Json& conditions, const TraceControls& controls);

}  // namespace kvdiv
