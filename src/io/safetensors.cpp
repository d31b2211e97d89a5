#include "kvdiv/io/safetensors.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

/// N, checked against the limit and the file. What is no safetensors file at all usually fails here: its first bytes,
/// read as a length, are absurd, so look at what they are before complaining about the length.
std::uint64_t checked_header_length(std::string_view bytes, const std::string& file) {
  if (bytes.empty()) fail_unreadable("{}: is empty (0 bytes); download it again", file);
  const auto fail_if_foreign = [&] {
    if (const std::string foreign = describe_foreign_bytes(bytes); !foreign.empty())
      fail_unreadable("{}: is {}", file, foreign);
  };
  if (bytes.size() < kLengthBytes) {
    fail_if_foreign();
    fail_unreadable("{}: is {} bytes long, too short for the 8-byte header length; download it again", file,
                    bytes.size());
  }
  std::uint64_t n = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  const std::uint64_t available = bytes.size() - kLengthBytes;
  if (n > kMaxSafetensorsHeader || n > available) fail_if_foreign();
  if (n > kMaxSafetensorsHeader)
    fail_unreadable("{}: header length {} is over the format's limit of {}: not a safetensors file, or damaged", file,
                    with_commas(n), with_commas(kMaxSafetensorsHeader));
  if (n > available)
    fail_unreadable("{}: header length {} is more than the {} bytes that follow it: cut off; download it again", file,
                    with_commas(n), with_commas(available));
  if (n == 0) fail_unreadable("{}: header length is 0, expected at least 2 bytes of JSON", file);
  return n;
}

Json parse_header(std::string_view header, const std::string& file) {
  const auto first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) fail_unreadable("{}: header is white space only, expected a JSON object", file);
  if (const auto bad = invalid_utf8_offset(header); bad != std::string_view::npos)
    fail_unreadable("{}: header is not UTF-8 at byte {}; download it again", file, kLengthBytes + bad);
  if (header[first] != '{')
    fail_unreadable("{}: header starts with byte 0x{:02x}, expected '{{': not a safetensors file, or damaged", file,
                    static_cast<unsigned char>(header[first]));
  return parse_json(header, file + ": header");
}

std::map<std::string, std::string> read_metadata(const Json& value, const std::string& file) {
  std::map<std::string, std::string> metadata;
  if (value.is_null()) return metadata;
  if (!value.is_object())
    fail_unreadable("{}: __metadata__: expected an object of texts, found {}", file, short_dump(value));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail_unreadable("{}: __metadata__: key '{}': expected a text, found {}", file, short_name(key), short_dump(text));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// One entry of the header; `where_` ("file: tensor 'name'") starts each message.
class EntryReader {
 public:
  EntryReader(const Json& entry, const std::string& name, const std::string& file)
      : entry_(entry), where_(fmt::format("{}: tensor '{}'", file, short_name(name))) {
    if (!entry.is_object()) fail_unreadable("{}: expected an object, found {}", where_, short_dump(entry));
    info_.name = name;
  }

  TensorInfo read() && {
    read_dtype();
    read_shape();
    read_offsets();
    check_size();
    return std::move(info_);
  }

 private:
  const Json& member(const char* key) const {
    const auto it = entry_.find(key);
    if (it == entry_.end()) fail_unreadable("{}: {} is missing", where_, key);
    return *it;
  }

  void read_dtype() {
    const Json& value = member("dtype");
    if (!value.is_string()) fail_unreadable("{}: dtype: expected a text, found {}", where_, short_dump(value));
    const auto found = find_enum<DiskDType>(value.get<std::string>());
    if (!found)
      fail_unreadable("{}: dtype {} is unknown, expected one of {}", where_, short_dump(value), all_names<DiskDType>());
    info_.dtype = *found;
  }

  void read_shape() {
    const Json& value = member("shape");
    if (!value.is_array()) fail_unreadable("{}: shape: expected a list, found {}", where_, short_dump(value));
    for (const Json& dim : value) {
      if (!dim.is_number_integer())
        fail_unreadable("{}: shape {}: expected whole numbers, found {}", where_, short_dump(value), short_dump(dim));
      if (!dim.is_number_unsigned())
        fail_unreadable("{}: shape {}: dimension {} is negative", where_, short_dump(value), short_dump(dim));
      if (dim.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail_unreadable("{}: shape {}: dimension {} is too large", where_, short_dump(value), short_dump(dim));
      info_.shape.push_back(dim.get<std::int64_t>());
    }
  }

  void read_offsets() {
    const Json& value = member("data_offsets");
    if (!value.is_array() || value.size() != 2)
      fail_unreadable("{}: data_offsets: expected a pair [begin, end], found {}", where_, short_dump(value));
    if (!value[0].is_number_unsigned() || !value[1].is_number_unsigned())
      fail_unreadable("{}: data_offsets {}: expected whole numbers of at least 0", where_, short_dump(value));
    info_.begin = value[0].get<std::uint64_t>();
    info_.end = value[1].get<std::uint64_t>();
    if (info_.end < info_.begin)
      fail_unreadable("{}: data_offsets {}: the end lies before the begin", where_, short_dump(value));
  }

  void check_size() const {
    std::uint64_t bits = static_cast<std::uint64_t>(bits_of(info_.dtype));
    for (const std::int64_t dim : info_.shape)
      if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits))
        fail_unreadable("{}: shape {} of {} is more bits than 64 bits can count", where_, short_dump(member("shape")),
                        name_of(info_.dtype));
    if (bits % 8 != 0)
      fail_unreadable("{}: shape {} of {} is {} bits, not a whole number of bytes", where_, short_dump(member("shape")),
                      name_of(info_.dtype), bits);
    if (bits / 8 != info_.n_bytes())
      fail_unreadable("{}: shape {} of {} needs {} bytes, but data_offsets [{}, {}] span {}", where_,
                      short_dump(member("shape")), name_of(info_.dtype), bits / 8, info_.begin, info_.end,
                      info_.n_bytes());
  }

  const Json& entry_;
  std::string where_;
  TensorInfo info_;
};

/// The tensors, in the order of their bytes, must cover [0, n_data) exactly.
void check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t n_data, const std::string& file) {
  std::uint64_t at = 0;
  std::string previous;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < at)
      fail_unreadable("{}: tensor '{}': begins at byte {}, inside tensor '{}', which ends at byte {}", file,
                      short_name(tensor.name), tensor.begin, short_name(previous), at);
    if (tensor.begin > at)
      fail_unreadable("{}: tensor '{}': begins at byte {}, leaving a hole of {} bytes before it", file,
                      short_name(tensor.name), tensor.begin, tensor.begin - at);
    at = tensor.end;
    previous = tensor.name;
  }
  if (at > n_data)
    fail_unreadable(
        "{}: tensor '{}': ends at byte {} of the data, but only {} bytes are there ({} missing): cut off; "
        "download it again",
        file, short_name(previous), with_commas(at), with_commas(n_data), with_commas(at - n_data));
  if (at < n_data)
    fail_unreadable("{}: {} extra bytes follow the tensors' {}: damaged, or two files in one; download it again", file,
                    with_commas(n_data - at), with_commas(at));
}

}  // namespace

int bits_of(DiskDType dtype) {
  switch (dtype) {
    case DiskDType::f4:
      return 4;
    case DiskDType::f6_e2m3:
    case DiskDType::f6_e3m2:
      return 6;
    case DiskDType::boolean:
    case DiskDType::u8:
    case DiskDType::i8:
    case DiskDType::f8_e5m2:
    case DiskDType::f8_e4m3:
    case DiskDType::f8_e8m0:
    case DiskDType::f8_e4m3fnuz:
    case DiskDType::f8_e5m2fnuz:
      return 8;
    case DiskDType::i16:
    case DiskDType::u16:
    case DiskDType::f16:
    case DiskDType::bf16:
      return 16;
    case DiskDType::i32:
    case DiskDType::u32:
    case DiskDType::f32:
      return 32;
    case DiskDType::c64:
    case DiskDType::f64:
    case DiskDType::i64:
    case DiskDType::u64:
      return 64;
  }
  return 0;
}

bool is_weight_dtype(DiskDType dtype) {
  return dtype == DiskDType::f64 || dtype == DiskDType::f32 || dtype == DiskDType::f16 || dtype == DiskDType::bf16;
}

std::int64_t TensorInfo::n_elements() const {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) n *= dim;  // checked against the byte count when the header was read
  return n;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::uint64_t n = checked_header_length(text, file);
  SafetensorsHeader header =
      parse_safetensors_header(text.substr(kLengthBytes, n), text.size() - kLengthBytes - n, file);
  header.data_begin = kLengthBytes + n;
  return header;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t n_data, const std::string& file) {
  const Json json = parse_header(text, file);
  SafetensorsHeader header;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__")
      header.metadata = read_metadata(entry, file);
    else
      header.tensors.push_back(EntryReader(entry, name, file).read());
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(header.tensors, n_data, file);
  return header;
}

}  // namespace kvdiv
