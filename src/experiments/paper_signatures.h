#pragma once
// The published numbers beside the signatures of known faults, planted in the model at hand.
#include "kvdiv/experiments/context.h"
#include "kvdiv/experiments/paper.h"

namespace kvdiv {

/// {threshold, published, rows: [distance and signature of each fault and of no fault], nearest, nearest_float16, fits,
/// sentence}. `published`: the key `signature` of configs/paper_published.json. Null if interrupted.
Json paper_signatures(Context& context, const PaperParams& params, const Json& published);

}  // namespace kvdiv
