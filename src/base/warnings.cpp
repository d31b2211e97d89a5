#include "kvdiv/base/warnings.h"

#include <algorithm>
#include <array>

namespace kvdiv {
namespace {

struct Case {
  WarningCode code;
  std::string_view name;
  std::string_view remedy;
};

constexpr std::array kCases{
    Case{WarningCode::greedy_seeds_collapsed, "greedy_seeds_collapsed",
         "greedy decoding does not depend on the seed: add prompts, not seeds"},
    Case{WarningCode::no_tokenizer, "no_tokenizer",
         "give prompts as {\"ids\": [...]}; texts and accuracy are left out"},
    Case{WarningCode::sliding_window_default, "sliding_window_default",
         "write \"sliding_window\": null (full attention) or a number into config.json"},
    Case{
        WarningCode::head_differs_from_embedding, "head_differs_from_embedding",
        "the tied embedding is used, as the reference does; remove lm_head.weight or set tie_word_embeddings to false"},
    Case{WarningCode::rope_theta_conflict, "rope_theta_conflict",
         "make rope_theta and rope_parameters.rope_theta equal"},
    Case{WarningCode::unknown_config_keys, "unknown_config_keys",
         "if a key changes the model's arithmetic, this checkpoint is not what kvdiv computes: compare with its "
         "reference"},
    Case{WarningCode::cast_overflow, "cast_overflow", "run this checkpoint in bfloat16 or float32"},
    Case{WarningCode::cast_flushed_to_zero, "cast_flushed_to_zero",
         "compare with a run in the checkpoint's own dtype before drawing conclusions"},
    Case{WarningCode::ties, "ties", "tied flips are counted apart (tie_flips), not as numeric ones"},
    Case{WarningCode::nonfinite_logits, "nonfinite_logits",
         "run in bfloat16 or float32; see n_nonfinite in the records"},
    Case{WarningCode::few_prompts, "few_prompts", "intervals resample prompts: use at least 10 (--limit)"},
    Case{WarningCode::default_model, "default_model", "name the checkpoint with --model"},
    Case{WarningCode::missing_gold_answers, "missing_gold_answers",
         "give prompts with \"question\" and \"answer\" to have accuracy"},
    Case{WarningCode::fp64_check_skipped, "fp64_check_skipped",
         "use a machine with more memory, or run --dtype float64 on a smaller checkpoint"},
    Case{WarningCode::busy_machine, "busy_machine",
         "repeat on an idle machine, or with --threads 1, before quoting speeds"},
    Case{WarningCode::source_incomplete, "source_incomplete", "finish the run before drawing conclusions"},
    Case{WarningCode::source_invalid, "source_invalid",
         "read that run's verdict first: nothing here is better than it"},
    Case{WarningCode::unlike_environments, "unlike_environments",
         "make all shards on like machines, or read each by itself: between them bits may differ"},
};
static_assert(kCases.size() == static_cast<std::size_t>(WarningCode::all_warnings_end), "every warning has a case");

const Case& case_of(WarningCode code) {
  return *std::find_if(kCases.begin(), kCases.end(), [&](const Case& c) { return c.code == code; });
}

}  // namespace

std::string_view code_of(WarningCode code) { return case_of(code).name; }
std::string_view remedy_of(WarningCode code) { return case_of(code).remedy; }

void Warnings::add(WarningCode code, std::string message) {
  keep({std::string(code_of(code)), std::move(message), std::string(remedy_of(code))});
}

void Warnings::keep(Warning warning) {
  const bool known = std::any_of(all_.begin(), all_.end(), [&](const Warning& w) {
    return w.code == warning.code && w.message == warning.message;
  });
  if (!known) all_.push_back(std::move(warning));
}

}  // namespace kvdiv
