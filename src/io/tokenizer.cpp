#include "kvdiv/io/tokenizer.h"

#include <sentencepiece_processor.h>

#include <charconv>

#include "kvdiv/base/error.h"
#include "kvdiv/base/fields.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/sentencepiece_model.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// The keys of tokenizer_config.json that matter here; a null is the same as no key.
struct Config {
  std::optional<bool> add_bos_token, add_prefix_space;
  std::optional<std::string> bos_token;
};

Config read_config(const fs::path& path) {
  Config config;
  // A link that leads nowhere, or around in circles, is a file that cannot be read.
  if (std::error_code ignored; !fs::exists(fs::symlink_status(path, ignored))) return config;
  const Json json = read_json_file(path);
  const std::string where = path.string();
  if (!json.is_object()) fail_json_type(where, "an object", json);
  const auto read = [&](const char* key, auto& value) {
    if (const auto it = json.find(key); it != json.end()) from_json_value(*it, value, where + ": key " + key);
  };
  read("add_bos_token", config.add_bos_token);
  read("add_prefix_space", config.add_prefix_space);
  if (const auto it = json.find("bos_token"); it != json.end()) {
    const bool nested = it->is_object() && it->contains("content");  // {"content": "<s>", "lstrip": false, …}
    from_json_value(nested ? (*it)["content"] : *it, config.bos_token, where + ": key bos_token");
  }
  return config;
}

std::optional<fs::path> find_model_file(const fs::path& dir) {
  for (const char* name : {"tokenizer.model", "tokenizer.model.v3"}) {
    std::error_code ignored;
    const fs::path path = dir / name;
    // A dangling link is a file that cannot be read, not a model without a tokenizer.
    if (fs::exists(fs::symlink_status(path, ignored))) return path;
  }
  return std::nullopt;
}

std::optional<TokenId> optional_id(int id) { return id < 0 ? std::nullopt : std::optional<TokenId>(id); }

std::string with_spaces(std::string_view piece) {
  std::string out;
  for (auto at = piece.find(kSpaceMark); at != std::string_view::npos; at = piece.find(kSpaceMark)) {
    out.append(piece.substr(0, at)).append(" ");
    piece.remove_prefix(at + kSpaceMark.size());
  }
  return out.append(piece);
}

/// The byte of a piece that is spelled "<0x0A>".
char byte_of(std::string_view piece) {
  unsigned value = 0;
  if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return static_cast<char>(value);
}

}  // namespace

struct Tokenizer::Impl {
  std::string where;
  SentencePieceProcessor processor;
  SentencePieceTraits traits;
  bool add_bos = false;
  std::optional<TokenId> bos, eos;

  void load(std::string bytes, const Config& config);
  void choose_bos(const Config& config);
};

void Tokenizer::Impl::load(std::string bytes, const Config& config) {
  traits = read_sentencepiece_traits(bytes, where);
  if (config.add_prefix_space == false) bytes = with_dummy_prefix(std::move(bytes), false);
  if (traits.byte_fallback && !traits.has_charsmap) bytes = with_extra_whitespaces_removed(std::move(bytes), false);
  traits = read_sentencepiece_traits(bytes, where);
  if (traits.treat_whitespace_as_suffix || !traits.escape_whitespaces)
    fail_unreadable("{}: expected pieces that start with their space, found {}; give prompts as {{\"ids\": [...]}}",
                    where, traits.escape_whitespaces ? "treat_whitespace_as_suffix" : "escape_whitespaces false");
  const auto status = processor.LoadFromSerializedProto(bytes);
  if (!status.ok())
    fail_unreadable("{}: SentencePiece refuses the model ({}); download the file again", where, status.message());
  choose_bos(config);
  eos = optional_id(processor.eos_id());
}

void Tokenizer::Impl::choose_bos(const Config& config) {
  bos = optional_id(processor.bos_id());
  add_bos = config.add_bos_token.value_or(bos.has_value());
  if (config.bos_token) {
    const int id = processor.PieceToId(*config.bos_token);
    if (processor.IdToPiece(id) == *config.bos_token) {
      bos = id;
    } else if (add_bos) {  // PieceToId gives the unknown piece for what it does not know
      fail_unreadable(
          "{}: expected the bos_token '{}' of tokenizer_config.json among the pieces, found none; correct the "
          "key, or give prompts as {{\"ids\": [...]}}",
          where, *config.bos_token);
    }
  }
  if (add_bos && !bos)
    fail_unreadable("{}: tokenizer_config.json has add_bos_token true, but the model has no BOS piece; set it to false",
                    where);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::optional<Tokenizer> Tokenizer::open(const fs::path& model_dir) {
  const auto path = find_model_file(model_dir);
  if (!path) return std::nullopt;
  auto impl = std::make_unique<Impl>();
  impl->where = path->string();
  impl->load(read_text_file(*path), read_config(model_dir / "tokenizer_config.json"));
  return Tokenizer(std::move(impl));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  // SentencePiece would put U+FFFD in the place of what is not UTF-8, and the prompt would be another one.
  if (const auto bad = invalid_utf8_offset(text); bad != std::string_view::npos)
    fail_unreadable("text for the tokenizer is not UTF-8: byte {} is 0x{:02x}; save the prompts as UTF-8", bad,
                    static_cast<unsigned char>(text[bad]));
  std::vector<int> pieces;
  const auto status = impl_->processor.Encode(text, &pieces);
  if (!status.ok()) fail_unreadable("{}: SentencePiece cannot encode a text ({})", impl_->where, status.message());
  std::vector<TokenId> ids;
  ids.reserve(pieces.size() + 1);
  if (impl_->add_bos && (pieces.empty() || pieces.front() != *impl_->bos)) ids.push_back(*impl_->bos);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  const auto& processor = impl_->processor;
  std::string text;
  bool at_start = true;
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size())
      fail_unreadable("{}: token id {} is not among the tokenizer's {} pieces; is it another model's tokenizer?",
                      impl_->where, id, vocab_size());
    const int piece_id = static_cast<int>(id);
    if (processor.IsControl(piece_id)) continue;
    std::string_view piece = processor.IdToPiece(piece_id);
    if (at_start && impl_->traits.add_dummy_prefix && piece.starts_with(kSpaceMark))
      piece.remove_prefix(kSpaceMark.size());
    at_start = false;
    if (processor.IsUnknown(piece_id)) {
      text += impl_->traits.unk_surface;
    } else if (processor.IsByte(piece_id)) {
      text += byte_of(piece);
    } else {
      text += with_spaces(piece);
    }
  }
  return text;
}

std::int64_t Tokenizer::vocab_size() const { return impl_->traits.n_pieces; }
std::optional<TokenId> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos_id() const { return impl_->eos; }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }

}  // namespace kvdiv
