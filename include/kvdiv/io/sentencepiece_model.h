#pragma once
// What the SentencePiece library does not tell about a model file, read from the file's own bytes: a protocol buffer
// (wire format: protobuf.dev/programming-guides/encoding; fields: sentencepiece_model.proto of google/sentencepiece).
// Reading it first also means that a broken file is named as such before the library sees it.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvdiv {

struct SentencePieceTraits {
  std::int64_t n_pieces = 0;
  bool add_dummy_prefix = true;                ///< a space is put in front of every text
  bool remove_extra_whitespaces = true;        ///< runs of spaces become one, those at the ends go
  bool has_charsmap = false;                   ///< characters are normalised (NFKC and the like)
  bool byte_fallback = false;                  ///< what is not in the vocabulary becomes byte pieces
  bool escape_whitespaces = true;              ///< pieces hold U+2581 where texts hold a space
  bool treat_whitespace_as_suffix = false;     ///< pieces end with U+2581 instead of starting with it
  std::string unk_surface = " \xE2\x81\x87 ";  ///< how an unknown piece is shown
};

/// Reads the traits. Throws Error unreadable, naming `where`, if the bytes are no complete model: no protocol buffer, a
/// Git-LFS pointer, cut short, or without pieces, trainer or normalizer settings.
SentencePieceTraits read_sentencepiece_traits(std::string_view bytes, const std::string& where);

/// The bytes of the same model with a normalizer setting replaced: a later occurrence of a message is merged into the
/// earlier one.
std::string with_dummy_prefix(std::string bytes, bool add);
std::string with_extra_whitespaces_removed(std::string bytes, bool remove);

}  // namespace kvdiv
