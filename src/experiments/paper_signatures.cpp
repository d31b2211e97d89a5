#include "paper_signatures.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common_signatures.h"
#include "kvdiv/base/interrupt.h"
#include "kvdiv/decode/faults.h"

namespace kvdiv {
namespace {

constexpr std::size_t kPrompts = 2;
constexpr std::int64_t kPromptTokens = 64;
constexpr std::int64_t kSteps = 6;

struct Entry {
  SignatureDistance distance;
  SignatureNumbers float16, float32;
};

class Signatures {
 public:
  Signatures(Context& context, const PaperParams& params, const PublishedSignature& published)
      : published_(published),
        prompts_(cut_prompts(context.prompts, kPrompts, kPromptTokens)),
        half_(context.load(DType::float16, params.backend.front(), params.attention)),
        single_(context.load(DType::float32, params.backend.front(), params.attention)) {}

  /// Null: no fault. None if the model, or so short a text, cannot have it.
  std::optional<Entry> measure(const FaultSpec* spec) const {
    std::optional<PlantedFault> fault;
    if (spec != nullptr) {
      std::size_t shortest = prompts_.front().size();
      for (const auto& p : prompts_) shortest = std::min(shortest, p.size());
      const auto n = static_cast<std::int64_t>(shortest);
      if (!cannot_be_planted(*spec, half_.decoder.config(), DType::float16, n, n + kSteps - 1).empty())
        return std::nullopt;
      fault.emplace(*spec);
    }
    const Planted planted = fault ? fault->planted() : Planted{};
    Entry e;
    e.float16 = measure_signature(half_.decoder, planted, prompts_, {kSteps});
    e.float32 = measure_signature(single_.decoder, planted, prompts_, {kSteps});
    e.distance = signature_distance(spec != nullptr ? std::string(name_of(spec->fault)) : "healthy", e.float16,
                                    e.float32, published_);
    return e;
  }

 private:
  const PublishedSignature& published_;
  std::vector<std::vector<TokenId>> prompts_;
  LoadedModel half_, single_;
};

using Key = std::optional<double> SignatureDistance::*;

const Entry& nearest_by(const std::vector<Entry>& entries, Key key) {
  return *std::min_element(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return (a.distance.*key).value_or(INFINITY) < (b.distance.*key).value_or(INFINITY);
  });
}

std::string sentence_of(const Entry& nearest, const Entry& nearest16) {
  const double both = nearest.distance.both.value_or(INFINITY), half = nearest16.distance.float16.value_or(INFINITY);
  const auto fit = [](double d) { return d <= kSignatureFits ? "fits" : "does not fit"; };
  return fmt::format(
      "By all four numbers {} is nearest, {:.2g} orders of magnitude away, and {} ({} is the limit). By the FP16 "
      "numbers "
      "alone {} is nearest, {:.2g} away, and {}; its mean KL in FP32 on this model is {:.2g} nats.",
      nearest.distance.symptom, both, fit(both), kSignatureFits, nearest16.distance.symptom, half, fit(half),
      nearest16.float32.same_prefix_kl_nats);
}

Json to_row(const Entry& e) {
  Json row = to_json_value(e.distance);
  row["signature"] = to_json_value(e.float16);
  row["signature"]["float32"] = to_json_value(e.float32);
  return row;
}

}  // namespace

Json paper_signatures(Context& context, const PaperParams& params, const Json& published) {
  PublishedSignature numbers;
  from_json_value(published, numbers, "configs/paper_published.json: signature");
  context.progress.stage("signatures of known faults");
  const Signatures signatures(context, params, numbers);
  std::vector<Entry> entries{*signatures.measure(nullptr)};
  const auto n_faults = std::ssize(EnumNames<Fault>::values);
  for (std::int64_t i = 0; i < n_faults; ++i) {
    if (interrupted()) return nullptr;
    FaultSpec spec;
    spec.fault = EnumNames<Fault>::values[static_cast<std::size_t>(i)].first;
    if (auto entry = signatures.measure(&spec)) entries.push_back(std::move(*entry));
    context.progress.update({i + 1, n_faults, 0.0, 0.0});
  }
  context.progress.end_stage();
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.distance.both.value_or(INFINITY) < b.distance.both.value_or(INFINITY);
  });
  const Entry &nearest = entries.front(), &nearest16 = nearest_by(entries, &SignatureDistance::float16);
  Json rows = Json::array();
  for (const Entry& e : entries) rows.push_back(to_row(e));
  return {{"threshold", kSignatureFits},
          {"published", to_json_value(numbers)},
          {"rows", std::move(rows)},
          {"nearest", nearest.distance.symptom},
          {"nearest_float16", nearest16.distance.symptom},
          {"fits", nearest.distance.both.value_or(INFINITY) <= kSignatureFits},
          {"sentence", sentence_of(nearest, nearest16)}};
}

}  // namespace kvdiv
