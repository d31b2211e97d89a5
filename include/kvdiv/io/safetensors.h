#pragma once
// The safetensors format: 8 bytes of header length N (little-endian), N bytes of JSON, then the tensors' bytes, which
// tile the rest of the file without a hole or an overlap.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/enums.h"

namespace kvdiv {

/// Every dtype that the reference reader (0.8) knows. kvdiv computes with four of them: is_weight_dtype.
enum class DiskDType {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};
template <>
struct EnumNames<DiskDType> {
  static constexpr std::string_view what = "dtype";
  static constexpr std::array<std::pair<DiskDType, std::string_view>, 22> values{{
      {DiskDType::boolean, "BOOL"},
      {DiskDType::f4, "F4"},
      {DiskDType::f6_e2m3, "F6_E2M3"},
      {DiskDType::f6_e3m2, "F6_E3M2"},
      {DiskDType::u8, "U8"},
      {DiskDType::i8, "I8"},
      {DiskDType::f8_e5m2, "F8_E5M2"},
      {DiskDType::f8_e4m3, "F8_E4M3"},
      {DiskDType::f8_e8m0, "F8_E8M0"},
      {DiskDType::f8_e4m3fnuz, "F8_E4M3FNUZ"},
      {DiskDType::f8_e5m2fnuz, "F8_E5M2FNUZ"},
      {DiskDType::i16, "I16"},
      {DiskDType::u16, "U16"},
      {DiskDType::f16, "F16"},
      {DiskDType::bf16, "BF16"},
      {DiskDType::i32, "I32"},
      {DiskDType::u32, "U32"},
      {DiskDType::f32, "F32"},
      {DiskDType::c64, "C64"},
      {DiskDType::f64, "F64"},
      {DiskDType::i64, "I64"},
      {DiskDType::u64, "U64"},
  }};
};

/// Bits of one element.
int bits_of(DiskDType dtype);

/// F64, F32, F16, BF16: what a weight may be stored as.
bool is_weight_dtype(DiskDType dtype);

struct TensorInfo {
  std::string name;
  DiskDType dtype = DiskDType::f32;
  std::vector<std::int64_t> shape;   ///< row-major; [] is a scalar, a 0 makes it empty
  std::uint64_t begin = 0, end = 0;  ///< bytes, relative to the data section

  std::uint64_t n_bytes() const { return end - begin; }
  std::int64_t n_elements() const;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              ///< in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< __metadata__; only carried
  std::uint64_t data_begin = 0;                 ///< offset of the data section in the file: 8 + N, at any alignment
};

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Validates a whole file given as bytes; every tensor's [begin, end) lies inside it afterwards. Nothing is allocated
/// by a length that the file merely claims. The data is not read and may lie at any address: copy it out, byte by byte.
/// Throws Error{unreadable} with a message of its own for every rule; `file` starts each message.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

/// The same of the header's JSON alone, in front of `n_data` bytes; data_begin is 0.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t n_data, const std::string& file);

}  // namespace kvdiv
