#pragma once
// Tokenizers of the corpus, and model directories made by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io_support.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/tokenizer.h"

namespace kvdiv::test {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

inline const fs::path kRoot = KVDIV_TEST_ROOT;
inline const fs::path kCorpus = kRoot / "tests/corpus/tokenizers";
inline const fs::path kLlama = kCorpus / "llama-2", kMistral = kCorpus / "mistral-7b-v0.3";
inline const fs::path kStories = kRoot / "data/models/toy-llama", kGemmaLike = kRoot / "tests/io/data/gemma-like";

/// A model directory of its own, removed at the end.
class ModelDir {
 public:
  const fs::path& path() const { return dir_.path(); }
  ModelDir& write(const std::string& name, const std::string& bytes) {
    write_bytes(dir_ / name, bytes);
    return *this;
  }
  ModelDir& model(const fs::path& source) {
    return write("tokenizer.model", read_text_file(source / "tokenizer.model"));
  }
  ModelDir& config(const std::string& json) { return write("tokenizer_config.json", json); }

 private:
  TempDir dir_;
};

inline Tokenizer open_tokenizer(const fs::path& dir) {
  auto tokenizer = Tokenizer::open(dir);
  if (!tokenizer) throw std::runtime_error("no tokenizer in " + dir.string());
  return std::move(*tokenizer);
}

/// The message of the refusal; stderr must stay empty, for messages are kvdiv's own.
inline std::string tokenizer_refusal(const fs::path& dir) {
  testing::internal::CaptureStderr();
  std::string message = "no error";
  try {
    Tokenizer::open(dir);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    message = error.what();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  return message;
}

inline std::vector<std::string> questions() {
  std::vector<std::string> out;
  for (const auto& line : split(read_text_file(kRoot / "data/gsm8k/test.jsonl"), '\n'))
    if (!line.empty()) out.push_back(Json::parse(line)["question"].get<std::string>());
  return out;
}

inline Ids without_bos(Ids ids) { return {ids.begin() + 1, ids.end()}; }

}  // namespace kvdiv::test
