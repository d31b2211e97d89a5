#pragma once
// Prompts: the shipped GSM8K test split, or a file of JSON lines, as validated token ids.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/fields.h"
#include "kvdiv/io/tokenizer.h"

namespace kvdiv {

struct Prompt {
  std::string id;                       ///< unique in the set: "gsm8k-test-<row>", the file's own id, or "line-<n>"
  std::vector<TokenId> ids;             ///< what the model is fed, BOS included where there is one
  std::string text;                     ///< empty where the prompt was given as ids
  std::optional<std::string> solution;  ///< the text with the right answer ("… #### 18")
  std::string sha256;                   ///< of ids as little-endian int64
};

/// Default of sample_size for gsm8k: the size of the paper's sample.
inline constexpr std::int64_t kGsm8kSampleSize = 700;

struct PromptParams {
  std::string prompts = "gsm8k";  ///< or a path to JSON lines
  std::int64_t offset = 0;
  std::optional<std::int64_t> limit;
  std::optional<std::int64_t> sample_size;  ///< unset: kGsm8kSampleSize for gsm8k; all rows of a file, in order
  std::int64_t sample_seed = 42;
  std::int64_t num_fewshot = 0;
};

template <class V>
void describe_fields(V& v, PromptParams& p) {
  v.field(
      "prompts", p.prompts,
      "gsm8k (the shipped test split), or a file of JSON lines: {\"ids\": […]}, {\"prompt\": …} or {\"question\": …, "
      "\"answer\": …}, each with an optional \"id\"");
  v.field("limit", p.limit, "use at most this many prompts, after --offset (default: all)");
  v.field("offset", p.offset, "skip this many prompts of the sample");
  v.field(
      "sample-size", p.sample_size,
      "draw this many rows as Python's random.Random(seed).sample(range(rows), n) does (default: 700 for gsm8k; a file "
      "is used whole and in its order)");
  v.field("sample-seed", p.sample_seed, "seed of the sample");
  v.field("num-fewshot", p.num_fewshot,
          "worked examples in front of each question: the first rows of the GSM8K training split, in their order");
}

struct PromptSet {
  std::vector<Prompt> prompts;
  std::string source;                 ///< "gsm8k" or the file's path as given
  std::string sha256;                 ///< of the source file's bytes
  std::vector<std::int64_t> indices;  ///< rows (from 0, blank lines not counted) of `prompts`, in the same order
};

/// Puts in the default that depends on the source, so that configurations and reports show what was used.
void resolve_defaults(PromptParams& params);

/// Reads, validates, samples, cuts and tokenises. The order is: sample, then offset, then limit.
///
/// A row's `ids` are used as they are, with no BOS added, and win over a `prompt` or `question` beside them; then comes
/// `prompt`, as it is; then `question`, as "Question: …\nAnswer:" behind num_fewshot blocks of
/// "Question: …\nAnswer: …\n\n". A text starts with BOS where the tokenizer adds one. `answer` is the solution of
/// whichever. Other keys are left alone.
///
/// `tokenizer` may be null if all chosen rows have ids. `gsm8k_dir` holds test.jsonl and train.jsonl. Every id must be
/// in [0, vocab_size), the number of rows of the model's embedding.
///
/// Throws Error: usage for a negative number, more samples than rows, few-shot examples for a row that has no question;
/// unreadable, with file, line and key, for everything in the file, and where no prompt is left.
PromptSet load_prompts(const PromptParams& params, const Tokenizer* tokenizer, const std::filesystem::path& gsm8k_dir,
                       std::int64_t vocab_size);

/// load_prompts of a file's bytes; `path` is its name in messages.
PromptSet parse_prompts(std::string_view bytes, const std::string& path, const PromptParams& params,
                        const Tokenizer* tokenizer, const std::filesystem::path& gsm8k_dir, std::int64_t vocab_size);

/// Lower-case hexadecimal SHA-256 of ids as little-endian int64.
std::string sha256_of_ids(const std::vector<TokenId>& ids);

}  // namespace kvdiv
