#include "kvdiv/io/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/safetensors_support.h"

namespace kvdiv::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One tensor "t" of the given entry, with `n` bytes of data.
std::string one(const std::string& entry, std::size_t n) {
  return safetensors_bytes("{\"t\":{" + entry + "}}", std::string(n, '\1'));
}
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format("\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":{}", dtype, shape, offsets);
}

TEST(Safetensors, FiveWaysOfABrokenDownloadHaveFiveMessages) {
  const std::string good = one(entry("F32", "[2]", "[0,8]"), 8);
  EXPECT_EQ(why(good), "no error");
  std::string claims_all = good;
  for (std::size_t i = 0; i < 8; ++i) claims_all[i] = static_cast<char>(good.size() >> (8 * i) & 0xff);
  const std::map<std::string, std::string> cases{
      {good.substr(0, good.size() - 1),
       "tensor 't': ends at byte 8 of the data, but only 7 bytes are there (1 missing)"},
      {good + "x", "1 extra bytes follow the tensors' 8"},
      {"", "is empty (0 bytes)"},
      {good.substr(0, 7), "is 7 bytes long, too short for the 8-byte header length"},
      {claims_all, "is more than the"}};
  std::set<std::string> messages;
  for (const auto& [bytes, words] : cases) {
    EXPECT_THAT(why(bytes), HasSubstr(words));
    messages.insert(why(bytes));
  }
  EXPECT_EQ(messages.size(), 5u);
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(why(good.substr(0, n)), "no error") << n;
}

TEST(Safetensors, RecognisesWhatIsNoSafetensorsFile) {
  const std::string pointer =
      read_bytes(corpus_path("configs/mistral-7b-instruct-v0.3") / "model-00001-of-00003.safetensors.lfs-pointer");
  EXPECT_THAT(why(pointer), AllOf(HasSubstr("Git-LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_THAT(why("<!DOCTYPE html><html><body>404</body></html>"), HasSubstr("HTML page"));
  EXPECT_THAT(why("<html>"), HasSubstr("HTML page"));
  EXPECT_THAT(why(std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0", 12)), HasSubstr("zip archive"));
  EXPECT_THAT(why(std::string("\x80\x02\x8a\x0alFFLFF", 9)), HasSubstr("pickle"));
  EXPECT_THAT(why("GGUF" + std::string(60, '\2')), HasSubstr("GGUF"));
  EXPECT_THAT(why("just some words here"), HasSubstr("over the format's limit"));
}

TEST(Safetensors, HeaderLengthsAtTheEdges) {
  // The claimed length is never allocated: 2⁶⁴−1 must not wrap when 8 is added.
  EXPECT_THAT(why(safetensors_bytes("{}", "", ~std::uint64_t{0})), HasSubstr("18,446,744,073,709,551,615"));
  EXPECT_THAT(why(safetensors_bytes("{}", "", ~std::uint64_t{0} - 7)), HasSubstr("over the format's limit"));
  EXPECT_THAT(why(safetensors_bytes("{}", "", kMaxSafetensorsHeader + 1)), HasSubstr("over the format's limit"));
  EXPECT_THAT(why(safetensors_bytes("{}", "", kMaxSafetensorsHeader)), HasSubstr("cut off"));
  EXPECT_THAT(why(safetensors_bytes("")), HasSubstr("header length is 0"));
  EXPECT_THAT(why(safetensors_bytes("    ")), HasSubstr("white space only"));
  EXPECT_THAT(why(safetensors_bytes("[]")), HasSubstr("starts with byte 0x5b, expected '{'"));
  EXPECT_THAT(why(safetensors_bytes("\xef\xbb\xbf{}")), HasSubstr("starts with byte 0xef"));
  EXPECT_THAT(why(safetensors_bytes(std::string("{}\0\0", 4))), HasSubstr("NUL byte"));
  EXPECT_THAT(why(safetensors_bytes("{} x")), HasSubstr("not JSON"));
}

TEST(Safetensors, SpacePaddedHeadersOfAnyLengthLoad) {
  const std::string header = "{\"t\":{" + entry("F16", "[1]", "[0,2]") + "}}";
  for (const std::size_t n : {99'990u, 99'995u, 100'000u, 100'001u}) {
    const std::string padded = header + std::string(n - header.size(), ' ');
    const SafetensorsHeader parsed = parse(safetensors_bytes(padded, "ab"));
    EXPECT_EQ(parsed.data_begin, 8 + n);
    EXPECT_EQ(parsed.tensors.size(), 1u);
  }
}

TEST(Safetensors, MetadataMayBeAbsentEmptyOrNull) {
  for (const char* metadata : {"", "\"__metadata__\":{},", "\"__metadata__\":null,"}) {
    const std::string header = std::string("{") + metadata + "\"t\":{" + entry("U8", "[1]", "[0,1]") + "}}";
    EXPECT_EQ(parse(safetensors_bytes(header, "x")).tensors.size(), 1u) << metadata;
  }
  const SafetensorsHeader header = parse(safetensors_bytes(R"({"__metadata__":{"format":"pt","note":"exec x"}})"));
  EXPECT_EQ(header.metadata.at("note"), "exec x");
  EXPECT_THAT(header.tensors, IsEmpty());
  EXPECT_THAT(why(safetensors_bytes(R"({"__metadata__":{"n":1}})")),
              HasSubstr("__metadata__: key 'n': expected a text, found 1"));
  EXPECT_THAT(why(safetensors_bytes(R"({"__metadata__":["pt"]})")), HasSubstr("__metadata__: expected an object"));
  EXPECT_THAT(why(safetensors_bytes(R"({},"__metadata__":{"format":"pt"}})")), HasSubstr("not JSON"));
}

TEST(Safetensors, EveryFieldOfAnEntryIsChecked) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\"shape\":[1],\"data_offsets\":[0,4]", "dtype is missing"},
      {"\"dtype\":\"F32\",\"data_offsets\":[0,4]", "shape is missing"},
      {"\"dtype\":\"F32\",\"shape\":[1]", "data_offsets is missing"},
      {"\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]", "dtype: expected a text, found 7"},
      {entry("F31", "[1]", "[0,4]"), "dtype \"F31\" is unknown, expected one of BOOL"},
      {entry("f32", "[1]", "[0,4]"), "dtype \"f32\" is unknown"},
      {entry("F32", "1", "[0,4]"), "shape: expected a list, found 1"},
      {entry("F32", "[1.0]", "[0,4]"), "shape [1.0]: expected whole numbers, found 1.0"},
      {entry("F32", "[\"1\"]", "[0,4]"), "expected whole numbers, found \"1\""},
      {entry("F32", "[true]", "[0,4]"), "expected whole numbers, found true"},
      {entry("F32", "[-1]", "[0,4]"), "dimension -1 is negative"},
      {entry("F32", "[9223372036854775808]", "[0,4]"), "dimension 9223372036854775808 is too large"},
      {entry("F32", "[1]", "[0]"), "data_offsets: expected a pair [begin, end], found [0]"},
      {entry("F32", "[1]", "[0,4,8]"), "data_offsets: expected a pair"},
      {entry("F32", "[1]", "{\"a\":0,\"b\":4}"), "data_offsets: expected a pair"},
      {entry("F32", "[1]", "[-1,3]"), "data_offsets [-1,3]: expected whole numbers of at least 0"},
      {entry("F32", "[1]", "[0,4.0]"), "expected whole numbers of at least 0"},
      {entry("F32", "[1]", "[4,0]"), "data_offsets [4,0]: the end lies before the begin"},
      {entry("F32", "[32,8]", "[0,65536]"), "needs 1024 bytes, but data_offsets [0, 65536] span 65536"},
      {entry("F4", "[3]", "[0,2]"), "is 12 bits, not a whole number of bytes"},
      {entry("F32", "[4294967296,4294967296]", "[0,4]"), "more bits than 64 bits can count"},
      {entry("F32", "[4294967296,4294967296,0]", "[0,0]"), "more bits than 64 bits can count"}};
  std::set<std::string> messages;
  for (const auto& [text, words] : cases) {
    const std::string message = why(one(text, 4));
    EXPECT_THAT(message, AllOf(HasSubstr("f: tensor 't': "), HasSubstr(words))) << text;
    messages.insert(message);
  }
  EXPECT_EQ(messages.size(), cases.size());
  EXPECT_THAT(why(safetensors_bytes("{\"t\":[]}")), HasSubstr("tensor 't': expected an object, found []"));
}

TEST(Safetensors, ManyZerosAreFineWhateverFollowsThem) {
  EXPECT_EQ(parse(one(entry("F32", "[0,4294967296,4294967296]", "[0,0]"), 0)).tensors.at(0).n_elements(), 0);
}

TEST(Safetensors, EveryDtypeHasItsSize) {
  const std::map<std::string, int> bits{
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  EXPECT_EQ(bits.size(), EnumNames<DiskDType>::values.size());
  for (const auto& [name, n] : bits) {
    const auto bytes = static_cast<std::size_t>(n);  // eight elements
    const SafetensorsHeader header = parse(one(entry(name, "[8]", fmt::format("[0,{}]", bytes)), bytes));
    EXPECT_EQ(bits_of(header.tensors.at(0).dtype), n) << name;
    EXPECT_EQ(is_weight_dtype(header.tensors.at(0).dtype),
              name == "F64" || name == "F32" || name == "F16" || name == "BF16");
  }
}

std::string two(const std::string& a, const std::string& b, std::size_t n_data) {
  return safetensors_bytes("{\"a\":{" + a + "},\"b\":{" + b + "}}", std::string(n_data, '\0'));
}

TEST(Safetensors, TensorsTileTheData) {
  EXPECT_EQ(why(two(entry("U8", "[100]", "[0,100]"), entry("U8", "[50]", "[100,150]"), 150)), "no error");
  EXPECT_EQ(why(two(entry("U8", "[50]", "[100,150]"), entry("U8", "[100]", "[0,100]"), 150)), "no error");
  EXPECT_THAT(why(two(entry("U8", "[100]", "[0,100]"), entry("U8", "[100]", "[50,150]"), 150)),
              HasSubstr("tensor 'b': begins at byte 50, inside tensor 'a', which ends at byte 100"));
  EXPECT_THAT(why(two(entry("U8", "[100]", "[0,100]"), entry("U8", "[50]", "[104,154]"), 154)),
              HasSubstr("tensor 'b': begins at byte 104, leaving a hole of 4 bytes before it"));
  EXPECT_THAT(why(one(entry("U8", "[4]", "[4,8]"), 8)), HasSubstr("leaving a hole of 4 bytes"));
  EXPECT_THAT(why(one(entry("U8", "[0]", "[18446744073709551615,18446744073709551615]"), 0)), HasSubstr("hole"));
  EXPECT_EQ(why(two(entry("U8", "[0]", "[4,4]"), entry("U8", "[4]", "[0,4]"), 4)), "no error");
  EXPECT_THAT(why(safetensors_bytes("{}", "x")), HasSubstr("1 extra bytes"));
}

TEST(Safetensors, ANameTwiceIsRefused) {
  const std::string header =
      "{\"w\":{" + entry("U8", "[1]", "[0,1]") + "},\"w\":{" + entry("U8", "[1]", "[1,2]") + "}}";
  EXPECT_THAT(why(safetensors_bytes(header, "xy")), HasSubstr("key 'w' occurs twice"));
  const std::string inner = "{\"w\":{\"dtype\":\"F32\"," + entry("U8", "[1]", "[0,1]") + "}}";
  EXPECT_THAT(why(safetensors_bytes(inner, "x")), HasSubstr("key 'dtype' occurs twice"));
}

TEST(Safetensors, DataMayLieAtAnyAddress) {
  const float value = 1.5f;
  for (std::size_t pad = 0; pad < 4; ++pad) {
    const std::string header = "{\"t\":{" + entry("F32", "[1]", "[0,4]") + "}}" + std::string(pad, ' ');
    const std::string bytes =
        safetensors_bytes(header, std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
    const SafetensorsHeader parsed = parse(bytes);
    float copied = 0;
    std::memcpy(&copied, bytes.data() + parsed.data_begin + parsed.tensors[0].begin, sizeof copied);
    EXPECT_EQ(copied, value);
  }
}

TEST(Safetensors, NamesInMessagesAreCutAndEscaped) {
  const std::string name = "line\\nbreak" + std::string(5000, 'x');
  const std::string message = why(safetensors_bytes("{\"" + name + "\":3}"));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvdiv::test
