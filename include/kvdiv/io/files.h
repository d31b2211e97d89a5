#pragma once
// Text and JSON files, read strictly and written whole or not at all.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kvdiv/base/json.h"

namespace kvdiv {

inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{64} << 20;
inline constexpr int kMaxJsonDepth = 64;

/// The file's bytes as they are. Throws Error{unreadable}, also for more than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxTextBytes);

/// One JSON value. Refused, with line and column: bytes that are not UTF-8, syntax errors, a NUL byte, text after the
/// value, an object that names a key twice, more than kMaxJsonDepth levels. `where` starts each message.
Json parse_json(std::string_view text, const std::string& where);

/// parse_json of a file of at most kMaxJsonBytes.
Json read_json_file(const std::filesystem::path& path);

/// Replaces the file in one step: readers see the old text or the new one, and a failure (a full disk) leaves the old
/// one and no debris. A link stays one: what it leads to is replaced. What is no file (/dev/stdout, a pipe) is written to
/// and not replaced. Throws Error{unreadable}.
void write_text_file_atomically(const std::filesystem::path& path, std::string_view text);

/// What a file is instead of the one that was expected, by its first bytes ("a Git-LFS pointer, not the file itself:
/// …"), with a remedy; empty if it is none of the usual mix-ups.
std::string describe_foreign_bytes(std::string_view head);

}  // namespace kvdiv
