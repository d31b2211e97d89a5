#pragma once
// The texts of a pair that flipped, cut where they part, with the token that differs marked.
#include <optional>
#include <string>

#include "kvdiv/base/json.h"
#include "kvdiv/base/records.h"

namespace kvdiv {

/// A text in three parts; the middle one is the token at the flip. Cut: the text goes on there.
struct MarkedText {
  std::string before, token, after;
  bool is_cut_before = false, is_cut_after = false;
};

struct MarkedPair {
  MarkedText on, off;
};

/// Where the token begins is not in the records: it is the last place up to the first byte that differs at which both
/// texts go on with their tokens' texts; the first character that differs where there is no such place, or where a
/// token has no text (`token_*` null). Texts that differ nowhere have empty tokens at their ends. No character is cut.
MarkedPair mark_flip(const std::string& text_on, const std::string& text_off,
                     const std::optional<std::string>& token_on, const std::optional<std::string>& token_off);

/// What the page shows of a pair with a flip: its names, the marked texts (null without texts), the ids around the
/// flip, the top tokens of both arms, and what the step says of it (null if the step is not among `steps`).
Json flip_example(const PairRecord& pair, const StepRecord* flip_step);

}  // namespace kvdiv
