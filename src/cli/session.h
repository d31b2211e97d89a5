#pragma once
// An opened checkpoint with its prompts: everything a measuring command needs before it measures.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/experiments/context.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/hub.h"
#include "kvdiv/io/prompts.h"
#include "kvdiv/io/tokenizer.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/switches.h"
#include "params.h"

namespace kvdiv {

struct Session {
  DataPaths data;
  ResolvedModel model;
  Checkpoint checkpoint;
  ModelConfig config;
  std::optional<Tokenizer> tokenizer;
  PromptSet prompt_set;
  std::vector<PromptItem> prompts;
  int n_threads = 1;
  const DeviceModule* gpu = nullptr;  ///< null: computes on the CPU
  NumericSwitches switches;
  Warnings warnings;

  c10::Device device() const { return gpu != nullptr ? gpu->device() : c10::Device(c10::kCPU); }

  /// Prompt and new tokens must fit into the model's positions. Throws Error{usage} that names the prompt.
  void require_room(std::int64_t max_new_tokens) const;
  LoadedModel load(DType dtype, const std::string& backend, const std::string& attention);
  /// Text of generated ids; ids beyond the tokenizer's pieces (padding rows of the embedding) become U+FFFD.
  std::string detokenize(std::span<const TokenId> ids) const;
};

/// The GPU that the flags ask for, or null for the CPU. Throws Error{usage} if it was asked for and is not to be had, and
/// for a flag that only a GPU has.
const DeviceModule* choose_gpu(const ModelParams& model);

/// Finds, opens and validates model, tokenizer and prompts. Nothing is loaded yet.
std::unique_ptr<Session> open_session(const ModelParams& model, PromptParams& prompts);

}  // namespace kvdiv
