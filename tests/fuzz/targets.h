#pragma once
// What must hold for every input, whatever its bytes. A target returns, or throws std::logic_error that says what does not
// hold: an exception other than Error, an Error of another kind than unreadable, a message that cannot be shown in a
// terminal, or a result that breaks the parser's own promise. libFuzzer runs them (scripts/fuzz), and so does
// replay_test.cpp with the files of tests/corpus/fuzz/NAME.
#include <cstdint>
#include <span>
#include <string_view>

namespace kvdiv::test {

using Bytes = std::span<const std::uint8_t>;

void fuzz_safetensors(Bytes input);  ///< a whole file
void fuzz_config(Bytes input);       ///< config.json, or config.json NUL generation_config.json
void fuzz_index(Bytes input);        ///< model.safetensors.index.json
void fuzz_prompts(Bytes input);      ///< JSON lines
void fuzz_records(Bytes input);      ///< records.jsonl
void fuzz_contract(Bytes input);     ///< a contract
void fuzz_checkpoint(Bytes input);   ///< config.json NUL the JSON of a safetensors header
void fuzz_tokenizer(Bytes input);    ///< tokenizer.model, as far as kvdiv itself reads it

struct FuzzTarget {
  std::string_view name;
  void (*run)(Bytes);
};
std::span<const FuzzTarget> fuzz_targets();

}  // namespace kvdiv::test
