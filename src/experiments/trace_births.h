#pragma once
// Which operation of a step turns inputs that are equal in both arms into outputs that are not.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kvdiv/decode/arms.h"
#include "kvdiv/decode/capture.h"
#include "kvdiv/experiments/trace.h"

namespace kvdiv {

using SitePlace = std::pair<Site, std::int64_t>;  ///< layer from 0

/// An operation of the decoder: what it makes of what.
struct Operation {
  std::string_view name;
  SitePlace output;
  std::vector<SitePlace> inputs;
  /// Only the positions that ON's cache held before the step: no operation of this step, but where an older difference
  /// comes in. It has no inputs.
  bool stored = false;
};

/// In the order of computation. `eager`: scores, softmax and mix can be seen one by one; else attention is one operation.
std::vector<Operation> operations_of(const ModelConfig& config, bool eager);

/// OFF's values of a site in the shape that ON has there: ON's row of a windowed layer holds the newest keys only.
at::Tensor aligned(Site site, const at::Tensor& off, const at::Tensor& on);

struct TensorDifference {
  bool equal = true;  ///< bit patterns: −0 differs from 0
  std::optional<double> rel_l2;
  double max_abs = 0.0;
};
TensorDifference difference_of(const at::Tensor& on, const at::Tensor& off);

/// One step ≥ 1 in both arms, the newest position at every site.
class TracedStep {
 public:
  TracedStep(const Arms& arms, const Trajectory& trajectory, std::int64_t step);

  /// Each operation as it came, and alone: ON's step is run again, and behind each operation goes on with OFF's values, so
  /// that the next one has OFF's inputs.
  std::vector<TraceBirthRecord> births() const;

  /// ON − OFF of the attention outputs by query head [H,D], FP64. `stored_only`: ON's step with OFF's query, and OFF's
  /// newest key and value, so that only what the cache held differs.
  std::vector<at::Tensor> mix_errors(bool stored_only) const;

  /// The captured steps gave the trajectory's logits, bit for bit.
  bool tap_changed_no_bit() const { return same_bits_; }
  /// The isolated run, which ends on OFF's values, gave OFF's logits.
  bool isolated_gave_off() const { return isolated_gave_off_; }

 private:
  using Differences = std::map<std::tuple<Site, std::int64_t, bool>, TensorDifference>;
  Differences isolated();
  void natural(TraceBirthRecord& record, const Operation& op) const;

  const Arms& arms_;
  const Trajectory& t_;
  std::int64_t step_;
  CaptureTap on_, off_;
  bool same_bits_ = false;
  bool isolated_gave_off_ = false;
  Differences alone_;
};

class BirthSummary {
 public:
  /// The operations of one (prompt, step), in order.
  void add(std::int32_t prompt, const std::vector<TraceBirthRecord>& records);
  /// {births: [{layer, operation, n, natural_rate, born_rate, isolated_rate, …}], births_by_operation: the same over all
  /// layers, first_born: [{operation, layer, n, rate}]}. natural_rate: it is the first of its layer (by operation: of the
  /// step) to make different outputs of equal inputs; born_rate: it does that, first or not.
  Json to_json() const;

 private:
  struct Cell {
    std::string operation;
    std::int64_t layer = 0, n = 0, n_first = 0, n_born = 0;
    std::vector<double> differs, rel_l2;  ///< isolated, a value a (prompt, step)
    std::vector<std::int32_t> prompts;
    double max_abs = 0.0;
    void add(std::int32_t prompt, const TraceBirthRecord& record, bool is_first);
    Json row(double n_chances) const;  ///< n_chances: how often it could have been the first
  };
  using Name = std::string;
  std::vector<Name> names_;  ///< of operations, in order of computation
  std::map<Name, Cell> by_operation_;
  std::vector<Cell> cells_;  ///< in order of computation
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> first_;
  std::int64_t n_ = 0;
};

}  // namespace kvdiv
