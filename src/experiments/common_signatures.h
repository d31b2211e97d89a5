#pragma once
// What a fault (or none) does to the numbers that a run reports: its signature. Two signatures are compared in orders
// of magnitude; nothing is said about where numbers come from.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/decode/arms.h"
#include "kvdiv/experiments/context.h"

namespace kvdiv {

/// Of greedy texts of a few prompts.
struct SignatureNumbers {
  double same_prefix_kl_nats = 0.0;   ///< mean KL(on‖off) over the steps of the forced clock
  double free_running_kl_nats = 0.0;  ///< the same, each arm on its own tokens
  double flips = 0.0;                 ///< share of same-prefix steps at which the arms choose different tokens
  double diverged = 0.0;              ///< share of pairs whose tokens differ
  std::optional<double> flip_index;   ///< median over the pairs that flip
  /// ‖Δ‖/‖state‖ of the newest token behind layer 1 at step 1, mean over prompts.
  std::optional<double> first_layer_drift;
};

template <class V>
void describe_fields(V& v, SignatureNumbers& n) {
  v.field("same_prefix_kl_nats", n.same_prefix_kl_nats);
  v.field("free_running_kl_nats", n.free_running_kl_nats);
  v.field("flips", n.flips);
  v.field("diverged", n.diverged);
  v.field("flip_index", n.flip_index);
  v.field("first_layer_drift", n.first_layer_drift);
}

struct SignatureParams {
  std::int64_t n_steps = 12;
};

/// Decodes each prompt to `n_steps` tokens, end-of-sequence tokens ignored.
SignatureNumbers measure_signature(const Decoder& decoder, const Planted& planted,
                                   std::span<const std::vector<TokenId>> prompts, const SignatureParams& params);

/// The first tokens of the first prompts: enough to fill a short window, few enough to be quick.
std::vector<std::vector<TokenId>> cut_prompts(std::span<const PromptItem> prompts, std::size_t n_prompts,
                                              std::int64_t n_tokens);

// ---- comparison with published numbers ----

/// Published numbers as low … high; none: not published.
struct PublishedNumbers {
  std::optional<std::vector<double>> kl_nats, diverged;
};

template <class V>
void describe_fields(V& v, PublishedNumbers& p) {
  v.field("kl_nats", p.kl_nats);
  v.field("diverged", p.diverged);
}

struct PublishedSignature {
  PublishedNumbers float16, float32;
};

template <class V>
void describe_fields(V& v, PublishedSignature& p) {
  v.field("float16", p.float16);
  v.field("float32", p.float32);
}

/// A signature fits if its distance is at most this: a factor of √10, on average over the numbers.
inline constexpr double kSignatureFits = 0.5;

/// |log10(measured/published)| of each number, 0 inside a published interval. Of a KL the nearer of same-prefix and
/// free-running counts, for it is not published which of the two it is; a share counts from 1 % on; 10 is the most.
struct SignatureDistance {
  std::string symptom;
  std::optional<double> kl_16, diverged_16, kl_32, diverged_32;
  std::optional<double> float16;  ///< root mean square of the first two
  std::optional<double> both;     ///< of all four
};

template <class V>
void describe_fields(V& v, SignatureDistance& d) {
  v.field("symptom", d.symptom);
  v.field("kl_float16", d.kl_16);
  v.field("diverged_float16", d.diverged_16);
  v.field("kl_float32", d.kl_32);
  v.field("diverged_float32", d.diverged_32);
  v.field("distance_float16", d.float16);
  v.field("distance", d.both);
}

SignatureDistance signature_distance(const std::string& symptom, const SignatureNumbers& float16,
                                     const SignatureNumbers& float32, const PublishedSignature& published);

}  // namespace kvdiv
