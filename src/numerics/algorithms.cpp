#include "kvdiv/numerics/algorithms.h"

namespace kvdiv {

Json algorithms_of(const Ops& ops) {
  Json out;
  for (const AlgorithmStretch& s : ops.choices()) {
    Json row = {{"n", s.n},
                {"k", s.k},
                {"dtype", s.dtype},
                {"from_rows", s.from_rows},
                {"to_rows", s.to_rows},
                {"n_row_counts", s.n_row_counts}};
    for (const auto& [name, value] : s.algorithm) row[name] = value;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace kvdiv
