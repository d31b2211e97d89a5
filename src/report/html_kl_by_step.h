#pragma once
// KL over the steps of a condition, as a band over its prompts.
#include <cstdint>
#include <vector>

#include "html_sketch.h"
#include "kvdiv/base/json.h"

namespace kvdiv {

/// Takes the values of one prompt after the other. Memory: kMaxBins bins; where there are more steps, neighbours are
/// put together, two by two, as often as it takes.
class KlBySteps {
 public:
  static constexpr std::size_t kMaxBins = 256;

  /// NaN and infinite values are counted and left out of the rest. step ≥ 0.
  void add(std::int64_t step, double kl_nats);
  /// What was added since is one prompt: its mean in each bin is one value of the band.
  void end_prompt();

  std::int64_t n() const;
  /// Lists of one length: step (the first of the bin), n, n_zero, n_nonfinite, mean (of the steps), and of the prompts
  /// p5, p25, median, p75, p95 (null where there is no value); beside them width, the steps of a bin.
  Json to_json() const;

 private:
  struct Bin {
    std::int64_t n = 0, n_zero = 0, n_nonfinite = 0, n_of_prompt = 0;
    double sum = 0.0, sum_of_prompt = 0.0;
    QuantileSketch prompts;
    void merge(const Bin& other);
  };
  void halve();

  std::int64_t width_ = 1;
  std::vector<Bin> bins_;
};

}  // namespace kvdiv
