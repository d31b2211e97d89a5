#include "session.h"

#include <algorithm>
#include <thread>

#include "kvdiv/base/error.h"
#include "kvdiv/model/weights.h"
#include "kvdiv/stats/answers.h"

namespace kvdiv {
namespace {

/// Below this a second thread costs more at its barriers than it saves.
constexpr std::int64_t kSmallModelParameters = 20'000'000;
constexpr const char* kDefaultModel = "toy-llama";

int choose_threads(const ModelParams& params, const ModelConfig& config) {
  if (params.threads) {
    if (*params.threads < 1) fail_usage("--threads: {} is less than 1", *params.threads);
    const int most = std::max(64, static_cast<int>(std::thread::hardware_concurrency()));
    if (*params.threads > most)
      fail_usage("--threads: {} is more than {}; this machine has {} cores", *params.threads, most,
                 std::thread::hardware_concurrency());
    return *params.threads;
  }
  return config.n_params() < kSmallModelParameters
             ? 1
             : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::vector<PromptItem> to_items(const PromptSet& set) {
  std::vector<PromptItem> items;
  for (std::size_t i = 0; i < set.prompts.size(); ++i) {
    const Prompt& p = set.prompts[i];
    items.push_back({p.id, p.sha256, set.indices[i], p.ids, p.solution ? gold_answer(*p.solution) : std::nullopt});
  }
  return items;
}

void warn(Session& s, const ModelParams& params) {
  if (!params.model)
    s.warnings.add(WarningCode::default_model,
                   "no --model given: this is toy-llama, a model of 260 thousand parameters");
  if (!s.tokenizer)
    s.warnings.add(WarningCode::no_tokenizer, s.model.path.string() + " has no tokenizer.model: prompts come as ids");
}

}  // namespace

const DeviceModule* choose_gpu(const ModelParams& model) {
  std::string why;
  const DeviceModule* gpu = nullptr;
  if (model.device == DeviceChoice::cuda) gpu = &load_cuda();
  if (model.device == DeviceChoice::automatic) gpu = try_load_cuda(why);
  if (gpu == nullptr && (model.allow_tf32 || model.allow_reduced_reduction))
    fail_usage("{}: only a GPU has this switch; use it with --device cuda",
               model.allow_tf32 ? "--allow-tf32" : "--allow-reduced-reduction");
  return gpu;
}

std::unique_ptr<Session> open_session(const ModelParams& model, PromptParams& prompts) {
  const DeviceModule* const gpu = choose_gpu(model);
  const DataPaths data = find_data_paths();
  const ResolvedModel resolved = resolve_model(model.model.value_or(kDefaultModel), data);
  Warnings warnings;
  Checkpoint checkpoint = Checkpoint::open(resolved.path);
  ModelConfig config = parse_model_config(checkpoint.config(), checkpoint.generation_config(),
                                          checkpoint.config_path().string(), warnings);
  check_checkpoint(checkpoint, config);
  auto session = std::make_unique<Session>(Session{data,
                                                   resolved,
                                                   std::move(checkpoint),
                                                   std::move(config),
                                                   Tokenizer::open(resolved.path),
                                                   {},
                                                   {},
                                                   1,
                                                   gpu,
                                                   {},
                                                   std::move(warnings)});
  resolve_defaults(prompts);
  // A model whose tokenizer kvdiv does not read may bring the questions as ids, row for row.
  if (const auto ids = resolved.path / "gsm8k-ids.jsonl";
      prompts.prompts == "gsm8k" && !session->tokenizer && std::filesystem::is_regular_file(ids))
    prompts.prompts = ids.string();
  session->prompt_set = load_prompts(prompts, session->tokenizer ? &*session->tokenizer : nullptr, data.data / "gsm8k",
                                     session->config.sizes.vocab);
  session->prompts = to_items(session->prompt_set);
  session->n_threads = choose_threads(model, session->config);
  session->switches.n_threads = session->n_threads;
  session->switches.allow_tf32 = model.allow_tf32;
  session->switches.allow_fp16_reduced_reduction = model.allow_reduced_reduction;
  session->switches.allow_bf16_reduced_reduction = model.allow_reduced_reduction;
  warn(*session, model);
  return session;
}

void Session::require_room(std::int64_t max_new_tokens) const {
  for (const PromptItem& p : prompts) {
    const auto n = static_cast<std::int64_t>(p.ids.size());
    if (max_new_tokens > config.sizes.max_positions - n)
      fail_usage(
          "prompt {}: {} tokens and {} new ones exceed the model's {} positions (max_position_embeddings); "
          "lower --max-new-tokens or leave this prompt out",
          p.id, n, max_new_tokens, config.sizes.max_positions);
  }
}

LoadedModel Session::load(DType dtype, const std::string& backend, const std::string& attention) {
  return load_model(checkpoint, config, dtype, make_ops(backend, attention, device()), warnings, device());
}

std::string Session::detokenize(std::span<const TokenId> ids) const {
  const std::int64_t n_pieces = tokenizer->vocab_size();
  const auto is_piece = [&](TokenId id) { return id >= 0 && id < n_pieces; };
  if (std::all_of(ids.begin(), ids.end(), is_piece)) return tokenizer->decode(ids);
  std::string out;
  std::vector<TokenId> run;
  for (const TokenId id : ids) {
    if (is_piece(id)) {
      run.push_back(id);
      continue;
    }
    out += tokenizer->decode(run) + "\xEF\xBF\xBD";
    run.clear();
  }
  return out + tokenizer->decode(run);
}

}  // namespace kvdiv
