#pragma once
// Parsing safetensors bytes that lie in memory of exactly their size.
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "io/io_support.h"
#include "kvdiv/io/safetensors.h"

namespace kvdiv::test {

inline SafetensorsHeader parse(const std::string& bytes, const std::string& file = "f") {
  // An exact copy on the heap, so that reading past either end is seen.
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return parse_safetensors({copy.get(), bytes.size()}, file);
}

inline std::string why(const std::string& bytes) {
  return refusal([&] { parse(bytes); });
}

inline std::filesystem::path corpus_path(const std::string& folder) {
  return std::filesystem::path(KVDIV_TEST_ROOT) / "tests" / "corpus" / folder;
}

}  // namespace kvdiv::test
