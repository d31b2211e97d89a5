// Files that others published, well-formed and malformed, and random damage to them.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "io/safetensors_support.h"
#include "kvdiv/base/random.h"
#include "kvdiv/base/text.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SafetensorsCorpus, TheMalformedCorpusIsJudgedAsExpected) {
  std::istringstream table(read_bytes(corpus_path("safetensors-malformed") / "EXPECTED.tsv"));
  std::string line;
  std::getline(table, line);
  int n_ok = 0, n_bad = 0;
  while (std::getline(table, line)) {
    const auto cells = split(line, '\t');
    const std::string bytes = read_bytes(corpus_path("safetensors-malformed") / cells[0]);
    ASSERT_EQ(std::to_string(bytes.size()), cells[1]) << cells[0];
    const std::string message = why(bytes);
    if (cells[2].starts_with("OK")) {
      EXPECT_EQ(message, "no error") << cells[0];
      ++n_ok;
    } else {
      EXPECT_THAT(message, HasSubstr("f: ")) << cells[0];
      ++n_bad;
    }
  }
  EXPECT_EQ(n_ok, 5);
  EXPECT_EQ(n_bad, 12);
}

TEST(SafetensorsCorpus, EveryBadFileOfTheCorpusHasAMessageOfItsOwn) {
  const std::map<std::string, std::string> expected{
      {"bad_bytes_overflow", "tensor 'test': shape [2,9223372036854775807] of I32 is more bits than 64 bits can count"},
      {"bad_data_short_by_2", "ends at byte 16 of the data, but only 14 bytes are there (2 missing)"},
      {"bad_empty_file", "is empty (0 bytes)"},
      {"bad_extra_trailing_bytes", "34 extra bytes follow the tensors' 16"},
      {"bad_header_len_1000", "header length 1,000 is more than the 80 bytes that follow it"},
      {"bad_header_len_over_limit", "over the format's limit of 100,000,000"},
      {"bad_header_len_past_eof", "header length 60 is more than the 0 bytes that follow it"},
      {"bad_header_not_json", "header: not JSON: line 1, column 2"},
      {"bad_header_not_utf8", "header is not UTF-8 at byte 8"},
      {"bad_overlapping_offsets",
       "tensor 'weight_1': begins at byte 0, inside tensor 'weight_0', which ends at byte 16"},
      {"bad_shape_product_overflow", "shape [2,18446744073709551614]: dimension 18446744073709551614 is too large"},
      {"bad_shape_vs_offsets", "shape [2,2] of I32 needs 16 bytes, but data_offsets [0, 4] span 4"}};
  std::set<std::string> messages;
  for (const auto& [name, words] : expected) {
    const std::string message = why(read_bytes(corpus_path("safetensors-malformed") / (name + ".safetensors")));
    EXPECT_THAT(message, HasSubstr(words)) << name;
    EXPECT_TRUE(messages.insert(message).second) << message;
  }
}

TEST(SafetensorsCorpus, LoadsTheOkFilesWithTheirContents) {
  const auto load = [](const std::string& name) {
    return parse(read_bytes(corpus_path("safetensors-malformed") / name));
  };
  const SafetensorsHeader basic = load("ok_basic_i32.safetensors");
  ASSERT_EQ(basic.tensors.size(), 1u);
  EXPECT_EQ(basic.tensors[0].name, "test");
  EXPECT_EQ(basic.tensors[0].dtype, DiskDType::i32);
  EXPECT_THAT(basic.tensors[0].shape, ElementsAre(2, 2));
  EXPECT_EQ(basic.data_begin, 68u);
  EXPECT_EQ(basic.tensors[0].n_bytes(), 16u);
  const SafetensorsHeader scalar = load("ok_scalar_empty_shape.safetensors");
  EXPECT_THAT(scalar.tensors.at(0).shape, IsEmpty());
  EXPECT_EQ(scalar.tensors.at(0).n_elements(), 1);
  EXPECT_EQ(load("ok_zero_sized_tensor.safetensors").tensors.at(0).n_elements(), 0);
  EXPECT_THAT(load("ok_header_leading_whitespace.safetensors").tensors, IsEmpty());
  EXPECT_THAT(load("ok_header_trailing_whitespace.safetensors").tensors, IsEmpty());
}

TEST(SafetensorsCorpus, LoadsThePublishedFiles) {
  const std::map<std::string, std::size_t> n_tensors{
      {"gptq_small", 5}, {"jfk-codes", 1}, {"multi_layer", 9}, {"scalellm_test", 20}};
  for (const auto& [name, n] : n_tensors) {
    const std::string bytes = read_bytes(corpus_path("safetensors-valid") / (name + ".safetensors"));
    const SafetensorsHeader header = parse(bytes);
    EXPECT_EQ(header.tensors.size(), n) << name;
    EXPECT_EQ(header.data_begin + header.tensors.back().end, bytes.size()) << name;
  }
}

TEST(SafetensorsCorpus, DamagedBytesGiveAnErrorOrAValidHeader) {
  std::vector<std::string> seeds;
  for (const char* folder : {"safetensors-malformed", "safetensors-valid"})
    for (const auto& file : fs::directory_iterator(corpus_path(folder)))
      if (file.path().extension() == ".safetensors") seeds.push_back(read_bytes(file.path()).substr(0, 4096));
  PythonRandom random(7);
  int n_loaded = 0;
  for (int i = 0; i < 6'000; ++i) {
    std::string bytes = seeds[random.below(seeds.size())];
    if (bytes.empty()) continue;
    for (std::uint64_t k = random.below(3) + 1; k-- > 0;)
      bytes[random.below(std::min<std::size_t>(bytes.size(), 200))] = static_cast<char>(random.below(256));
    try {
      const SafetensorsHeader header = parse(bytes);
      for (const TensorInfo& tensor : header.tensors) ASSERT_LE(header.data_begin + tensor.end, bytes.size());
      ++n_loaded;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::unreadable);
    }
  }
  EXPECT_GT(n_loaded, 0);
}

}  // namespace
}  // namespace kvdiv::test
