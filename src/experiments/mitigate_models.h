#pragma once
// The decoders of the remedies. Those that compute with the weights of the run share them; the others are loaded.
#include <map>
#include <memory>
#include <vector>

#include "kvdiv/experiments/context.h"
#include "kvdiv/numerics/routed_ops.h"
#include "mitigate_remedies.h"

namespace kvdiv {

/// A decoder over the weights of another as they lie in memory, with other operations and perhaps another dtype of
/// activations.
Decoder decoder_over(Decoder& weights, DType dtype, std::shared_ptr<const Ops> ops);

/// A decoder some of whose kinds of operation are those of `fixed`, the others those of `usual`: two decoders of one
/// model, each with its operations.
struct OpsOf {
  Decoder& decoder;
  std::shared_ptr<const Ops> ops;
};
Decoder routed_decoder(const OpsOf& usual, const OpsOf& fixed, OperationSet fixed_kinds);

class RemedyModels {
 public:
  /// `result` gets the cast counts of each dtype that is loaded.
  RemedyModels(Context& context, const MitigateParams& params, ExperimentResult& result);

  const Decoder& of(Arithmetic arithmetic);
  /// Gives up what was loaded, but for the run's own weights.
  void drop();
  OpsOf usual();
  OpsOf invariant();

 private:
  std::shared_ptr<const Ops> ops_of(const std::string& backend) const;
  Decoder load(DType dtype, const std::string& backend, const std::string& attention);
  Decoder make(Arithmetic arithmetic);

  Context& context_;
  DType dtype_;
  std::string backend_, attention_;
  ExperimentResult& result_;
  std::map<Arithmetic, Decoder> decoders_;
};

/// Arithmetics with weights of their own: what must be loaded beside the run's.
bool is_loaded_apart(Arithmetic arithmetic);

/// The remedies in the groups whose weights are in memory together: one group if all fit, else one for the run's own
/// weights and one for each that is loaded apart. `length`: positions of the longest text; `available`: bytes.
std::vector<std::vector<const Remedy*>> groups_that_fit(const std::vector<Remedy>& remedies, const ModelConfig& config,
                                                        DType base, std::int64_t length, std::uint64_t available);

}  // namespace kvdiv
