#include "kvdiv/io/sentencepiece_model.h"

#include <optional>
#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "sentencepiece_charsmap.h"

namespace kvdiv {
namespace {

enum class WireType : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

/// A field of another wire type than its own is one that nobody knows.
struct Field {
  std::uint64_t number = 0;
  WireType type = WireType::varint;
  std::uint64_t value = 0;  ///< of a varint
  std::string_view bytes;   ///< of a length-delimited field

  bool is_flag(std::uint64_t n) const { return number == n && type == WireType::varint; }
  bool is_bytes(std::uint64_t n) const { return number == n && type == WireType::bytes; }
};

/// Takes fields off the front of a message. `failed` is set where the bytes break the format.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  bool failed() const { return failed_; }

  std::optional<Field> next() {
    if (rest_.empty() || failed_) return std::nullopt;
    const std::uint64_t tag = varint();
    Field field{tag >> 3, static_cast<WireType>(tag & 7u), 0, {}};
    switch (field.type) {
      case WireType::varint:
        field.value = varint();
        break;
      case WireType::bytes:
        field.bytes = take(varint());
        break;
      case WireType::fixed64:
        take(8);
        break;
      case WireType::fixed32:
        take(4);
        break;
      default:
        failed_ = true;
    }
    if (field.number == 0) failed_ = true;
    return failed_ ? std::nullopt : std::optional(field);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }

  std::string_view take(std::uint64_t n_bytes) {
    if (failed_ || n_bytes > rest_.size()) {
      failed_ = true;
      return {};
    }
    const auto taken = rest_.substr(0, n_bytes);
    rest_.remove_prefix(n_bytes);
    return taken;
  }

  std::string_view rest_;
  bool failed_ = false;
};

// Field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
constexpr std::uint64_t kTrainerWhitespaceSuffix = 24, kTrainerByteFallback = 35, kTrainerUnkSurface = 44;
constexpr std::uint64_t kNormalizerCharsmap = 2, kNormalizerDummyPrefix = 3, kNormalizerRemoveExtra = 4,
                        kNormalizerEscape = 5;

template <class Visit>
bool for_each_field(std::string_view message, Visit visit) {
  WireReader reader(message);
  while (const auto field = reader.next()) visit(*field);
  return !reader.failed();
}

bool read_trainer(std::string_view message, SentencePieceTraits& traits) {
  return for_each_field(message, [&](const Field& field) {
    if (field.is_flag(kTrainerWhitespaceSuffix)) traits.treat_whitespace_as_suffix = field.value != 0;
    if (field.is_flag(kTrainerByteFallback)) traits.byte_fallback = field.value != 0;
    if (field.is_bytes(kTrainerUnkSurface)) traits.unk_surface = std::string(field.bytes);
  });
}

/// `charsmap` is what the library will take: the last of several.
bool read_normalizer(std::string_view message, SentencePieceTraits& traits, std::string_view& charsmap) {
  return for_each_field(message, [&](const Field& field) {
    if (field.is_bytes(kNormalizerCharsmap)) charsmap = field.bytes;
    if (field.is_flag(kNormalizerRemoveExtra)) traits.remove_extra_whitespaces = field.value != 0;
    if (field.is_flag(kNormalizerDummyPrefix)) traits.add_dummy_prefix = field.value != 0;
    if (field.is_flag(kNormalizerEscape)) traits.escape_whitespaces = field.value != 0;
  });
}

std::string with_normalizer_flag(std::string bytes, std::uint64_t number, bool value) {
  constexpr std::uint64_t kLengthDelimited = 2, kVarint = 0;
  for (const std::uint64_t byte : {kNormalizer << 3 | kLengthDelimited, std::uint64_t{2}, number << 3 | kVarint,
                                   static_cast<std::uint64_t>(value)})
    bytes += static_cast<char>(byte);  // tag of the message, its length, tag of the flag, the flag
  return bytes;
}

constexpr std::string_view kRemedy = "download the file again, or give prompts as {\"ids\": [...]} without it";

}  // namespace

SentencePieceTraits read_sentencepiece_traits(std::string_view bytes, const std::string& where) {
  if (const std::string foreign = describe_foreign_bytes(bytes); !foreign.empty())
    fail_unreadable("{}: is {}", where, foreign);
  SentencePieceTraits traits;
  SentencePieceTraits ignored;
  std::string_view charsmap, back;
  bool has_trainer = false, has_normalizer = false, inner_ok = true;
  const bool outer_ok = for_each_field(bytes, [&](const Field& field) {
    if (field.is_bytes(kPieces)) ++traits.n_pieces;
    if (field.is_bytes(kTrainer)) {
      has_trainer = true;
      inner_ok = read_trainer(field.bytes, traits) && inner_ok;
    }
    if (field.is_bytes(kNormalizer)) {
      has_normalizer = true;
      inner_ok = read_normalizer(field.bytes, traits, charsmap) && inner_ok;
    }
    if (field.is_bytes(kDenormalizer)) inner_ok = read_normalizer(field.bytes, ignored, back) && inner_ok;
  });
  if (!outer_ok || !inner_ok)
    fail_unreadable("{}: expected a SentencePiece model, found {} bytes that are cut short or something else; {}",
                    where, bytes.size(), kRemedy);
  traits.has_charsmap = !charsmap.empty();
  for (const std::string_view table : {charsmap, back})
    if (const auto problem = problem_of_charsmap(table); !table.empty() && !problem.empty())
      fail_unreadable("{}: the normalizer's precompiled_charsmap of {} bytes is damaged: {}; {}", where, table.size(),
                      problem, kRemedy);
  // The settings come after the pieces: a file cut between two pieces is well formed, but lacks them.
  if (traits.n_pieces == 0 || !has_trainer || !has_normalizer)
    fail_unreadable(
        "{}: expected pieces, trainer and normalizer settings, found {} pieces, {} trainer and {} normalizer "
        "settings: the file is incomplete; {}",
        where, traits.n_pieces, has_trainer ? "the" : "no", has_normalizer ? "the" : "no", kRemedy);
  return traits;
}

std::string with_dummy_prefix(std::string bytes, bool add) {
  return with_normalizer_flag(std::move(bytes), kNormalizerDummyPrefix, add);
}

std::string with_extra_whitespaces_removed(std::string bytes, bool remove) {
  return with_normalizer_flag(std::move(bytes), kNormalizerRemoveExtra, remove);
}

}  // namespace kvdiv
