#pragma once
// The table of a normalizing SentencePiece model. The library walks it without looking where it is: a table that leads
// outside its own bytes makes it read (and crash) there, so it is checked before the library sees the model.
#include <string_view>

namespace kvdiv {

/// What is wrong with a precompiled_charsmap, or empty if a walk can never leave it. Layout: the size of the trie in bytes
/// (32 bits, little-endian); the trie, a double array of 32-bit units as darts-clone makes it; then the replacements, each
/// ended by a NUL byte.
std::string_view problem_of_charsmap(std::string_view bytes);

}  // namespace kvdiv
