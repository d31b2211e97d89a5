#pragma once
// What decoding a pair tells beside its tokens: in the outcome of a pair, in its record, and in the controls.
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kvdiv/base/enums.h"

namespace kvdiv {

/// Where a pair stopped because logits were not finite.
struct NonfiniteStop {
  Arm arm = Arm::on;
  std::int64_t step = 0;
  /// First one whose output is not finite: 0 embeddings, 1…L blocks, L+1 final norm, L+2 logits.
  std::int64_t layer = 0;
  double max_abs_before = 0.0;  ///< largest |activation| of the layers before it
};

template <class V>
void describe_fields(V& v, NonfiniteStop& s) {
  v.field("arm", s.arm);
  v.field("step", s.step);
  v.field("layer", s.layer);
  v.field("max_abs_before", s.max_abs_before);
}

struct TokenCount {
  std::int64_t expected = 0;  ///< what the arm must compute: ON prompt + steps − 1 rows, OFF the whole prefix each step
  std::int64_t computed = 0;  ///< what its stepper sent through the decoder
  TokenCount& operator+=(const TokenCount& other) {
    expected += other.expected;
    computed += other.computed;
    return *this;
  }
};

template <class V>
void describe_fields(V& v, TokenCount& c) {
  v.field("expected", c.expected);
  v.field("computed", c.computed);
}

}  // namespace kvdiv
