#pragma once
// Known faults planted in a healthy decoder along a text that was observed: which of them gives what was seen.
#include <optional>
#include <vector>

#include "common_diagnosis.h"

namespace kvdiv {

class Simulation {
 public:
  /// `healthy` is in the dtype of the text; both must outlive this. The text's first `n_steps` steps are compared.
  Simulation(const Decoder& healthy, const Trajectory& observed, std::int64_t n_steps);

  /// Mean over the steps of KL(observed‖simulated), both arms together, nats; null: no fault.
  double distance(const std::optional<FaultSpec>& spec) const;
  /// The nearest first.
  void sort_by_distance(std::vector<Finding>& findings) const;
  /// The n nearest of: no fault, the findings, and every other fault that the model can have, in its usual size.
  std::vector<NearSymptom> nearest(const std::vector<Finding>& findings, std::size_t n) const;

 private:
  using Rows = std::vector<std::vector<double>>;
  Rows on(const Arms& arms) const;
  Rows off(const Arms& arms) const;

  const Decoder& decoder_;
  const Trajectory& observed_;
  std::int64_t n_steps_;
  Rows healthy_on_, healthy_off_;
};

}  // namespace kvdiv
