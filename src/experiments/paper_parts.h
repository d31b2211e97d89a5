#pragma once
// What the five experiments of `paper` gave, and what is read out of it.
#include "kvdiv/experiments/context.h"

namespace kvdiv {

struct PaperParts {
  ExperimentResult run, drift, falsify, boundary, patch;
};

/// The paper's five questions, each with a number, an interval and a verdict.
Json paper_questions(const PaperParts& parts);

/// Every published quantity with what was measured here and why the two differ. Error (internal) for an id that is not
/// known: a number that nobody computes must not pass in silence.
Json paper_comparison(const Json& published, const PaperParts& parts);

}  // namespace kvdiv
