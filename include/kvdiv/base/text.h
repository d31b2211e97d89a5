#pragma once
// Small text helpers that need no library.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvdiv {

using TokenId = std::int64_t;

/// The candidate with the smallest edit distance (the first of several), or empty if none is near: the distance must be
/// at most 1 + length / 3 and less than the length of the text.
std::string nearest_name(std::string_view text, std::span<const std::string> candidates);

/// ", did you mean 'x'?" or empty.
std::string did_you_mean(std::string_view text, std::span<const std::string> candidates);

/// Splits at the separator; an empty text gives one empty part.
std::vector<std::string> split(std::string_view text, char separator);

/// True if the bytes are well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool is_valid_utf8(std::string_view bytes);

/// Offset of the first byte that is not well-formed UTF-8, or npos.
std::size_t invalid_utf8_offset(std::string_view bytes);

/// Bytes for people: "5.2 GB" (decimal units).
std::string human_bytes(double bytes);

/// "1,234,567".
std::string with_commas(std::uint64_t value);

/// Lower-case hexadecimal SHA-256 of the bytes.
std::string sha256_hex(std::string_view bytes);

/// SHA-256 over several pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, std::size_t n_bytes);
  std::string hex();  ///< ends the hash; call once

 private:
  void* context_;
};

}  // namespace kvdiv
