#include "sentencepiece_charsmap.h"

#include <cstddef>
#include <cstdint>

namespace kvdiv {
namespace {

constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kBlock = 256;  ///< a step goes from a unit to one of 256, by the next byte of the text

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = kUnitBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// A unit is a value (bit 31), or a node: where its children are (from bit 10, in blocks if bit 9 is set), whether one of
// them is its value (bit 8), and the byte that leads to it.
bool is_value(std::uint32_t unit) { return (unit >> 31) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1u) != 0; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

std::string_view problem_of_charsmap(std::string_view bytes) {
  if (bytes.size() < kUnitBytes) return "too short";
  const std::size_t n_bytes = number_at(bytes, 0);
  const std::string_view rest = bytes.substr(kUnitBytes);
  if (n_bytes == 0 || n_bytes >= rest.size()) return "its trie is larger than it is";
  if (n_bytes % (kUnitBytes * kBlock) != 0) return "its trie ends inside a block";
  const std::string_view trie = rest.substr(0, n_bytes), replacements = rest.substr(n_bytes);
  if (replacements.back() != '\0') return "its last replacement has no end";
  const std::size_t n_units = n_bytes / kUnitBytes;
  for (std::size_t i = 0; i < n_units; ++i) {
    const std::uint32_t unit = number_at(trie, i * kUnitBytes);
    if (is_value(unit)) continue;
    const std::size_t children = i ^ offset_of(unit);
    if (children >= n_units) return "its trie leads outside itself";
    if (has_value(unit) && value_of(number_at(trie, children * kUnitBytes)) >= replacements.size())
      return "its trie leads behind the last replacement";
  }
  return {};
}

}  // namespace kvdiv
