#include "kvdiv/io/prompts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

#include "kvdiv/base/error.h"
#include "kvdiv/base/random.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGsm8k = "gsm8k";

constexpr std::size_t kShortestRow = std::string_view("{\"ids\":[1]}\n").size();

/// Most of what a file of short rows needs in memory: nothing is kept that can be made again.
struct Row {
  std::string id;  ///< empty: none given
  std::int64_t line = 0;
  std::optional<std::vector<TokenId>> ids;
  std::optional<std::string> prompt, question, answer;
};

/// "file:line", for messages.
std::string where_is(const std::string& path, std::int64_t line) { return fmt::format("{}:{}", path, line); }

struct Rows {
  std::vector<Row> rows;
  std::string sha256;
};

// ---- one line ------------------------------------------------------------------------------------------------------

std::string id_text(const Json& id, const std::string& where) {
  if (id.is_string() && !id.get<std::string>().empty()) return id.get<std::string>();
  if (id.is_number()) return id.dump();
  fail_json_type(where, "a text that is not empty, or a number", id);
}

template <class T>
void read_key(const Json& object, const char* key, const std::string& row, std::optional<T>& value) {
  const auto it = object.find(key);
  if (it == object.end()) return;
  const std::string where = row + ": key " + key;
  from_json_value(*it, value, where);
  if (value && value->empty())
    fail_unreadable("{}: expected something, found nothing; fill it in or remove the line", where);
}

Row parse_row(std::string_view text, const std::string& where, std::int64_t line) {
  const Json object = parse_json(text, where);
  if (!object.is_object()) fail_json_type(where, "one JSON object on the line", object);
  Row row{"", line, {}, {}, {}, {}};
  if (const auto it = object.find("id"); it != object.end() && !it->is_null())
    row.id = id_text(*it, where + ": key id");
  read_key(object, "ids", where, row.ids);
  read_key(object, "prompt", where, row.prompt);
  read_key(object, "question", where, row.question);
  read_key(object, "answer", where, row.answer);
  if (!row.ids && !row.prompt && !row.question) {
    std::string keys;
    for (const auto& [key, value] : object.items()) {
      if (keys.size() > 200) {
        keys += ", …";
        break;
      }
      keys += (keys.empty() ? "" : ", ") + short_name(key);
    }
    fail_unreadable("{}: expected a key ids, prompt or question, found {}", where, keys.empty() ? "no key" : keys);
  }
  return row;
}

// ---- the file ------------------------------------------------------------------------------------------------------

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

/// Calls `visit` with the lines that are not blank and their numbers from 1.
template <class F>
void for_each_line(std::string_view text, F visit) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    if (!is_blank(text.substr(0, end))) visit(text.substr(0, end), line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

Rows parse_rows(std::string_view bytes, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (const std::string foreign = describe_foreign_bytes(bytes); !foreign.empty())
    fail_unreadable("{}: is {}", path, foreign);
  Rows rows{{}, sha256_hex(bytes)};
  std::string_view rest = bytes;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  std::size_t n_rows = 0;
  for_each_line(rest, [&](std::string_view, std::int64_t) { ++n_rows; });
  rows.rows.reserve(std::min(n_rows, bytes.size() / kShortestRow + 1));
  for_each_line(rest, [&](std::string_view text, std::int64_t line) {
    rows.rows.push_back(parse_row(text, where_is(path, line), line));
  });
  return rows;
}

void name_rows(std::vector<Row>& rows, const std::string& path, bool is_gsm8k) {
  std::unordered_map<std::string, std::int64_t> seen;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (row.id.empty()) row.id = is_gsm8k ? fmt::format("gsm8k-test-{}", i) : fmt::format("line-{}", row.line);
    const auto [it, is_new] = seen.emplace(row.id, row.line);
    if (!is_new)
      fail_unreadable("{}: id '{}' is also that of line {}; ids must differ", where_is(path, row.line),
                      short_name(row.id), it->second);
  }
}

// ---- which rows ----------------------------------------------------------------------------------------------------

void check_params(const PromptParams& p) {
  const auto check = [](const char* flag, std::int64_t value) {
    if (value < 0) fail_usage("--{}: expected 0 or more, found {}", flag, value);
  };
  check("offset", p.offset);
  check("limit", p.limit.value_or(0));
  check("sample-size", p.sample_size.value_or(0));
  check("sample-seed", p.sample_seed);
  check("num-fewshot", p.num_fewshot);
}

std::vector<std::int64_t> choose_rows(const PromptParams& p, std::int64_t n_rows, const std::string& path) {
  std::vector<std::int64_t> chosen;
  if (p.sample_size) {
    if (*p.sample_size > n_rows)
      fail_usage("--sample-size {}: {} has {} rows only; use at most {}", *p.sample_size, path, n_rows, n_rows);
    chosen = PythonRandom(static_cast<std::uint64_t>(p.sample_seed)).sample_range(n_rows, *p.sample_size);
  } else {
    chosen.resize(static_cast<std::size_t>(n_rows));
    std::iota(chosen.begin(), chosen.end(), std::int64_t{0});
  }
  const auto n_sampled = std::ssize(chosen);
  const std::int64_t begin = std::min<std::int64_t>(p.offset, n_sampled);
  const std::int64_t n_left = std::min<std::int64_t>(p.limit.value_or(n_sampled), n_sampled - begin);
  if (n_left == 0)
    fail_unreadable(
        "{}: no prompt is left of {} rows with sample size {}, --offset {} and --limit {}; lower the offset or "
        "raise the limit",
        path, n_rows, n_sampled, p.offset, p.limit ? std::to_string(*p.limit) : "all");
  return {chosen.begin() + begin, chosen.begin() + begin + n_left};
}

// ---- tokens --------------------------------------------------------------------------------------------------------

std::string question_block(const std::string& question) { return "Question: " + question + "\nAnswer:"; }

std::string fewshot_text(std::int64_t n_examples, const fs::path& gsm8k_dir) {
  if (n_examples == 0) return "";
  const fs::path path = gsm8k_dir / "train.jsonl";
  const auto rows = parse_rows(read_text_file(path), path.string()).rows;
  if (n_examples > std::ssize(rows))
    fail_usage("--num-fewshot {}: {} has {} rows only", n_examples, path.string(), rows.size());
  std::string text;
  for (std::int64_t i = 0; i < n_examples; ++i) {
    const Row& row = rows[static_cast<std::size_t>(i)];
    if (!row.question || !row.answer)
      fail_unreadable("{}: expected the keys question and answer", where_is(path.string(), row.line));
    text += question_block(*row.question) + " " + *row.answer + "\n\n";
  }
  return text;
}

void check_ids(const Prompt& prompt, bool given_as_ids, const std::string& where, std::int64_t vocab_size) {
  if (prompt.ids.empty()) fail_unreadable("{}: the tokenizer makes no token of the prompt; give it some text", where);
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
    const TokenId id = prompt.ids[i];
    if (id >= 0 && id < vocab_size) continue;
    if (given_as_ids)
      fail_unreadable("{}: key ids[{}]: token id {} is not in the model's vocabulary of {}", where, i, id, vocab_size);
    fail_unreadable(
        "{}: the tokenizer gives id {} for token {}, the model's vocabulary has {}: tokenizer and model do not "
        "belong together",
        where, id, i, vocab_size);
  }
}

struct Encoder {
  const std::string& path;
  const Tokenizer* tokenizer;
  std::string fewshot;
  std::int64_t vocab_size;

  Prompt operator()(Row& row) const {
    const std::string where = where_is(path, row.line);
    const bool given_as_ids = row.ids.has_value();
    Prompt prompt{std::move(row.id), {}, "", std::move(row.answer), ""};
    if (!fewshot.empty() && (row.ids || row.prompt))
      fail_usage("--num-fewshot: {} has no question to put examples in front of (key {}); leave the flag out", where,
                 row.ids ? "ids" : "prompt");
    if (given_as_ids) {
      prompt.ids = std::move(*row.ids);
    } else {
      prompt.text = row.prompt ? *row.prompt : fewshot + question_block(*row.question);
      if (tokenizer == nullptr)
        fail_unreadable(
            "{}: the prompt is text, but the model has no tokenizer.model; give prompts as {{\"ids\": [...]}}", where);
      prompt.ids = tokenizer->encode(prompt.text);
    }
    check_ids(prompt, given_as_ids, where, vocab_size);
    prompt.sha256 = sha256_of_ids(prompt.ids);
    return prompt;
  }
};

}  // namespace

void resolve_defaults(PromptParams& params) {
  if (!params.sample_size && params.prompts == kGsm8k) params.sample_size = kGsm8kSampleSize;
}

PromptSet load_prompts(const PromptParams& params, const Tokenizer* tokenizer, const fs::path& gsm8k_dir,
                       std::int64_t vocab_size) {
  check_params(params);
  const fs::path path = params.prompts == kGsm8k ? gsm8k_dir / "test.jsonl" : fs::path(params.prompts);
  return parse_prompts(read_text_file(path), path.string(), params, tokenizer, gsm8k_dir, vocab_size);
}

PromptSet parse_prompts(std::string_view bytes, const std::string& path, const PromptParams& params,
                        const Tokenizer* tokenizer, const fs::path& gsm8k_dir, std::int64_t vocab_size) {
  PromptParams p = params;
  resolve_defaults(p);
  check_params(p);
  Rows file = parse_rows(bytes, path);
  name_rows(file.rows, path, p.prompts == kGsm8k);
  PromptSet set{{}, p.prompts, file.sha256, choose_rows(p, std::ssize(file.rows), path)};
  const Encoder encode{path, tokenizer, fewshot_text(p.num_fewshot, gsm8k_dir), vocab_size};
  set.prompts.reserve(set.indices.size());
  for (const std::int64_t index : set.indices)
    set.prompts.push_back(encode(file.rows[static_cast<std::size_t>(index)]));
  return set;
}

std::string sha256_of_ids(const std::vector<TokenId>& ids) {
  Sha256 hash;
  std::array<unsigned char, 8> bytes{};
  for (const TokenId id : ids) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(id) >> (8 * i));
    hash.update(bytes.data(), bytes.size());
  }
  return hash.hex();
}

}  // namespace kvdiv
