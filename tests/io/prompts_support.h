#pragma once
// A prompt file of its own for each test, and the words of a refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "io_support.h"
#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/prompts.h"

namespace kvdiv::test {

inline const std::filesystem::path kGsm8k = KVDIV_TEST_ROOT "/data/gsm8k";
inline constexpr std::int64_t kVocab = 512;

inline const Tokenizer& tokenizer() {
  static const Tokenizer shared = Tokenizer::open(KVDIV_TEST_ROOT "/data/models/toy-llama").value();
  return shared;
}

class PromptsTest : public testing::Test {
 protected:
  PromptsTest() { params_.prompts = (dir_ / "p.jsonl").string(); }

  void write(const std::string& text) { write_bytes(params_.prompts, text); }
  PromptSet load(const std::string& text) {
    write(text);
    return load_prompts(params_, &tokenizer(), kGsm8k, kVocab);
  }
  /// The message of the refusal, which must be of this kind.
  std::string refusal(const std::string& text, ErrorKind kind = ErrorKind::unreadable) {
    write(text);
    return refusal_of(params_, &tokenizer(), kind);
  }
  static std::string refusal_of(const PromptParams& params, const Tokenizer* with,
                                ErrorKind kind = ErrorKind::unreadable) {
    try {
      load_prompts(params, with, kGsm8k, kVocab);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      const std::string message = error.what();
      EXPECT_LE(std::count(message.begin(), message.end(), '\n'), 1) << message;
      return message;
    }
    return "no error";
  }
  std::string at(int line) const { return params_.prompts + ":" + std::to_string(line) + ": "; }

  TempDir dir_;
  PromptParams params_;
};

inline PromptParams gsm8k(std::int64_t limit) {
  PromptParams params;
  params.limit = limit;
  return params;
}

}  // namespace kvdiv::test
