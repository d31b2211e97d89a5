#include "kvdiv/base/text.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

/// Length of the well-formed sequence at the front, or 0.
std::size_t utf8_sequence_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return i < s.size() && (byte(i) & 0xC0u) == 0x80u; };
  const unsigned b0 = byte(0);
  if (b0 < 0x80) return 1;
  if (b0 >= 0xC2 && b0 <= 0xDF) return continues(1) ? 2 : 0;
  if (b0 >= 0xE0 && b0 <= 0xEF) {
    const bool second_ok = !(b0 == 0xE0 && byte(1) < 0xA0) && !(b0 == 0xED && byte(1) > 0x9F);
    return continues(1) && continues(2) && second_ok ? 3 : 0;
  }
  if (b0 >= 0xF0 && b0 <= 0xF4) {
    const bool second_ok = !(b0 == 0xF0 && byte(1) < 0x90) && !(b0 == 0xF4 && byte(1) > 0x8F);
    return continues(1) && continues(2) && continues(3) && second_ok ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string nearest_name(std::string_view text, std::span<const std::string> candidates) {
  std::string best;
  // Below the length of the text: replacing every letter is not a typing error.
  std::size_t best_distance = std::min(2 + text.size() / 3, text.size());
  for (const auto& candidate : candidates) {
    // So many letters must be added or taken away at least; an unknown key may be as long as its file.
    const std::size_t longer = std::max(text.size(), candidate.size()),
                      shorter = std::min(text.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    const std::size_t d = edit_distance(text, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> candidates) {
  const std::string near = nearest_name(text, candidates);
  return near.empty() ? "" : fmt::format(", did you mean '{}'?", near);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::size_t invalid_utf8_offset(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t n = utf8_sequence_length(bytes.substr(i));
    if (n == 0) return i;
    i += n;
  }
  return std::string_view::npos;
}

bool is_valid_utf8(std::string_view bytes) { return invalid_utf8_offset(bytes) == std::string_view::npos; }

std::string human_bytes(double bytes) {
  static constexpr std::array<const char*, 5> units{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  // What would be printed as 1000 belongs to the next unit: 999,999 is "1.0 MB".
  while (bytes >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < units.size()) {
    bytes /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string with_commas(std::uint64_t value) {
  std::string s = std::to_string(value);
  for (std::size_t i = s.size(); i > 3; i -= 3) s.insert(i - 3, 1, ',');
  return s;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) != 1)
    fail(ErrorKind::internal, "SHA-256 cannot be started");
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::update(const void* data, std::size_t n_bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, n_bytes);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int n = 0;
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &n);
  std::string out;
  for (unsigned int i = 0; i < n; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

}  // namespace kvdiv
