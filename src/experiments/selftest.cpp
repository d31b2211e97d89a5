#include "kvdiv/experiments/selftest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "common_diagnosis.h"
#include "common_signatures.h"
#include "kvdiv/base/interrupt.h"

namespace kvdiv {
namespace {

constexpr std::size_t kPrompts = 2;
constexpr std::int64_t kDiagnosedSteps = 4;
constexpr const char* kHealthy = "healthy";
constexpr const char* kAttention = "eager";

/// A row of the matrix: what was planted in which arithmetic, and what the diagnosis called it.
struct Row {
  std::string model, planted;
  DType dtype = DType::float16;
  std::string backend;
  Diagnosis diagnosis;
  SignatureNumbers numbers;
  std::optional<SignatureNumbers> in_float32;

  /// Rounding is what a healthy pair of arms may show.
  std::string named() const { return diagnosis.name == "rounding" ? kHealthy : diagnosis.name; }
  bool ok() const { return named() == planted; }
  Json to_json() const;
};

Json Row::to_json() const {
  Json signature = to_json_value(numbers);
  signature["float32"] = in_float32 ? to_json_value(*in_float32) : Json(nullptr);
  return {{"model", model},
          {"planted", planted},
          {"named", named()},
          {"ok", ok()},
          {"dtype", name_of(dtype)},
          {"backend", backend},
          {"diagnosis", diagnosis.name},
          {"sentence", diagnosis.sentence},
          {"where", diagnosis.where ? to_json_value(*diagnosis.where) : Json(nullptr)},
          {"evidence", diagnosis.evidence},
          {"signature", std::move(signature)}};
}

class Selftest {
 public:
  Selftest(Context& context, std::span<const SelftestModel> models, const SelftestParams& params)
      : context_(context), models_(models), params_(params) {}
  ExperimentResult execute();

 private:
  /// One model in hand: loaded once per dtype and backend.
  struct Subject {
    const SelftestModel& model;
    std::vector<std::vector<TokenId>> prompts;
    std::map<std::pair<DType, std::string>, LoadedModel> loaded = {};
    const Decoder& decoder(DType dtype, const std::string& backend);
    std::int64_t shortest_prompt() const;
  };
  void subject(const SelftestModel& model);
  void healthy(Subject& subject, DType dtype, const std::string& backend);
  void fault(Subject& subject, const FaultSpec& spec);
  Row examine(Subject& subject, DType dtype, const std::string& backend, const FaultSpec* spec);
  void put(const Row& row);
  void not_applicable(const Subject& subject, std::string_view planted, const std::string& reason);
  Json verdict() const;
  void advance();

  Context& context_;
  std::span<const SelftestModel> models_;
  const SelftestParams& params_;
  ExperimentResult result_;
  std::vector<Json> wrong_;
  std::int64_t n_rows_ = 0, n_faults_ = 0, n_done_ = 0;
};

const Decoder& Selftest::Subject::decoder(DType dtype, const std::string& backend) {
  const auto key = std::pair(dtype, backend);
  const auto it = loaded.find(key);
  return (it != loaded.end() ? it : loaded.emplace(key, model.load(dtype, backend, kAttention)).first)->second.decoder;
}

std::int64_t Selftest::Subject::shortest_prompt() const {
  std::size_t n = prompts.front().size();
  for (const auto& p : prompts) n = std::min(n, p.size());
  return static_cast<std::int64_t>(n);
}

/// Diagnosis first, in the dtype and in float64; then the numbers that a run would report, there and in float32.
Row Selftest::examine(Subject& s, DType dtype, const std::string& backend, const FaultSpec* spec) {
  std::optional<PlantedFault> fault, wide_fault;
  if (spec != nullptr) fault.emplace(*spec), wide_fault.emplace(*spec);
  const Planted planted = fault ? fault->planted() : Planted{};
  const Decoder &decoder = s.decoder(dtype, backend), &wide = s.decoder(DType::float64, "torch");
  const Arms arms(decoder, planted), wide_arms(wide, wide_fault ? wide_fault->planted() : Planted{});
  DiagnosisOptions options;
  options.max_steps = std::min(kDiagnosedSteps, params_.max_steps);
  options.n_nearest = 0;
  Row row{s.model.name,
          spec != nullptr ? std::string(name_of(spec->fault)) : kHealthy,
          dtype,
          backend,
          diagnose({arms, wide_arms, std::span(s.prompts).first(1)}, options),
          {},
          {}};
  const SignatureParams numbers{params_.max_steps};
  row.numbers = measure_signature(decoder, planted, s.prompts, numbers);
  if (dtype != DType::float32)
    row.in_float32 = measure_signature(s.decoder(DType::float32, backend), planted, s.prompts, numbers);
  return row;
}

void Selftest::put(const Row& row) {
  ++n_rows_;
  if (row.planted != kHealthy) ++n_faults_;
  result_.extra["matrix"].push_back(row.to_json());
  if (!row.ok()) wrong_.push_back(row.to_json());
}

void Selftest::not_applicable(const Subject& s, std::string_view planted, const std::string& reason) {
  result_.extra["not_applicable"].push_back({{"model", s.model.name}, {"planted", planted}, {"reason", reason}});
}

void Selftest::healthy(Subject& s, DType dtype, const std::string& backend) {
  try {
    put(examine(s, dtype, backend, nullptr));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    not_applicable(s, fmt::format("{} in {}/{}", kHealthy, name_of(dtype), backend), error.what());
  }
}

void Selftest::fault(Subject& s, const FaultSpec& spec) {
  const DType dtype = params_.dtype.front();
  const std::int64_t n = s.shortest_prompt();
  // The first steps must be able to show it, so that a diagnosis need not wait for a window to fill.
  const std::string reason = cannot_be_planted(spec, s.model.config, dtype, n, n + 1);
  if (!reason.empty()) return not_applicable(s, name_of(spec.fault), reason);
  put(examine(s, dtype, params_.backend.front(), &spec));
}

void Selftest::advance() {
  const auto n_each =
      static_cast<std::int64_t>(params_.dtype.size() * params_.backend.size() + EnumNames<Fault>::values.size());
  context_.progress.update({++n_done_, n_each * std::ssize(models_), 0.0, 0.0});
}

void Selftest::subject(const SelftestModel& model) {
  Subject s{model, cut_prompts(model.prompts, kPrompts, params_.prompt_tokens)};
  context_.progress.stage(fmt::format("selftest, {}", model.name));
  for (const DType dtype : params_.dtype)
    for (const std::string& backend : params_.backend) {
      if (interrupted()) return;
      healthy(s, dtype, backend);
      advance();
    }
  for (const auto& [kind, name] : EnumNames<Fault>::values) {
    if (interrupted()) return;
    FaultSpec spec;
    spec.fault = kind;
    fault(s, spec);
    advance();
  }
  context_.progress.end_stage();
  context_.sink.checkpoint(result_);
}

Json Selftest::verdict() const {
  if (wrong_.empty())
    return {{"kind", "holds"},
            {"sentence", fmt::format("All {} planted faults and all {} healthy runs were named for what they are.",
                                     n_faults_, n_rows_ - n_faults_)}};
  std::vector<std::string> rows;
  for (const Json& row : wrong_)
    rows.push_back(fmt::format("{}: {} was named {} ({})", row["model"].get<std::string>(),
                               row["planted"].get<std::string>(), row["named"].get<std::string>(),
                               row["sentence"].get<std::string>()));
  return {{"kind", "violated"},
          {"sentence", fmt::format("{} of {} rows were not named for what they are: {}.", wrong_.size(), n_rows_,
                                   fmt::join(rows, "; "))}};
}

ExperimentResult Selftest::execute() {
  result_.extra["matrix"] = Json::array();
  result_.extra["not_applicable"] = Json::array();
  for (const SelftestModel& model : models_) {
    subject(model);
    if (interrupted()) return std::move(result_);
  }
  std::map<std::pair<std::string, std::string>, std::int64_t> confusion;
  for (const Json& row : wrong_) ++confusion[{row["planted"].get<std::string>(), row["named"].get<std::string>()}];
  result_.extra["confusion"] = Json::array();
  for (const auto& [pair, n] : confusion)
    result_.extra["confusion"].push_back({{"planted", pair.first}, {"named", pair.second}, {"n", n}});
  result_.verdict = verdict();
  result_.complete = true;
  return std::move(result_);
}

}  // namespace

void validate(const SelftestParams& params) {
  if (params.dtype.empty()) fail_usage("--dtype: the list is empty");
  if (params.backend.empty()) fail_usage("--backend: the list is empty");
  for (const std::string& backend : params.backend) require_backend(backend, kAttention);
  for (const DType dtype : params.dtype)
    if (dtype == DType::float64) fail_usage("--dtype: float64 is what the others are held against; leave it out");
  if (params.prompt_tokens < 8) fail_usage("--prompt-tokens: {} is less than 8", params.prompt_tokens);
  if (params.max_steps < 4)
    fail_usage("--max-steps: {} is less than 4: faults show in the first steps", params.max_steps);
}

ExperimentResult run_selftest(Context& context, std::span<const SelftestModel> models, const SelftestParams& params) {
  validate(params);
  for (const SelftestModel& model : models)
    if (model.prompts.empty()) fail(ErrorKind::internal, "selftest: {} has no prompts", model.name);
  return Selftest(context, models, params).execute();
}

}  // namespace kvdiv
