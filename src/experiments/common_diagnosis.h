#pragma once
// What is wrong between the arms, and where: from what both compute, in float64, where rounding is too small to matter,
// and in the compute dtype, where rounding itself can be at the wrong place. The arms are black boxes.
#include <functional>
#include <string>
#include <vector>

#include "common_symptoms.h"
#include "kvdiv/base/json.h"

namespace kvdiv {

/// Where the arms part first, in the order of computation.
struct DiagnosisPlace {
  std::int64_t step = 0;   ///< of the forced clock; 0: the prompt
  std::int64_t layer = 0;  ///< 0 embeddings, 1 … L, L + 1 final norm and logits
  std::string operation;   ///< name_of_site
  std::string arm;         ///< "on" or "off": the one that breaks the rule; empty if that is not known
};

template <class V>
void describe_fields(V& v, DiagnosisPlace& p) {
  v.field("step", p.step);
  v.field("layer", p.layer);
  v.field("operation", p.operation);
  v.field("arm", p.arm);
}

/// A fault planted in a healthy arm, against what was observed.
struct NearSymptom {
  std::string symptom;  ///< or "healthy": the arms without a fault
  /// Mean over the steps of KL(observed‖simulated), both arms together, nats, float64.
  double distance_nats = 0.0;
};

template <class V>
void describe_fields(V& v, NearSymptom& n) {
  v.field("symptom", n.symptom);
  v.field("distance_nats", n.distance_nats);
}

struct Diagnosis {
  /// A symptom's; or "healthy": no bit differs; "rounding": nothing is left in float64; "unknown": no symptom fits.
  std::string name;
  std::string sentence;
  std::optional<DiagnosisPlace> where;
  std::vector<NearSymptom> nearest;  ///< the nearest first; empty if nothing survives in float64
  Json evidence;
};

/// Both arms in both dtypes, with whatever is planted in them; `wide` is float64.
struct Patient {
  const Arms& compute;
  const Arms& wide;
  std::span<const std::vector<TokenId>> prompts;
};

struct DiagnosisOptions {
  std::int64_t max_steps = 8;  ///< steps of a prompt in which a difference is sought
  std::int64_t n_nearest = 3;  ///< 0: nothing is simulated, unless symptoms tie
};

Diagnosis diagnose(const Patient& patient, const DiagnosisOptions& options = {});

}  // namespace kvdiv
