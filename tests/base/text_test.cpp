#include "kvdiv/base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvdiv {
namespace {

using namespace std::string_literals;

struct Utf8Case {
  std::string bytes;
  std::size_t first_bad;  // npos: well formed
};

class Utf8 : public testing::TestWithParam<Utf8Case> {};

TEST_P(Utf8, NamesTheFirstBadByte) {
  const auto& [bytes, first_bad] = GetParam();
  EXPECT_EQ(invalid_utf8_offset(bytes), first_bad);
  EXPECT_EQ(is_valid_utf8(bytes), first_bad == std::string::npos);
}

constexpr auto kGood = std::string::npos;

// The rows of table 3-7 of the Unicode standard, each range at both ends and one step outside.
INSTANTIATE_TEST_SUITE_P(
    Table, Utf8,
    testing::Values(Utf8Case{"", kGood}, Utf8Case{"\0"s, kGood}, Utf8Case{"\x7f", kGood}, Utf8Case{"\x80", 0},
                    Utf8Case{"a\xbf", 1}, Utf8Case{"\xc0\x80", 0}, Utf8Case{"\xc1\xbf", 0}, Utf8Case{"\xc2\x80", kGood},
                    Utf8Case{"\xdf\xbf", kGood}, Utf8Case{"\xdf\xc0", 0}, Utf8Case{"\xc2", 0},
                    Utf8Case{"\xe0\x9f\xbf", 0}, Utf8Case{"\xe0\xa0\x80", kGood}, Utf8Case{"\xec\xbf\xbf", kGood},
                    Utf8Case{"\xed\x9f\xbf", kGood}, Utf8Case{"\xed\xa0\x80", 0}, Utf8Case{"\xee\x80\x80", kGood},
                    Utf8Case{"\xef\xbf\xbf", kGood}, Utf8Case{"\xe2\x82", 0}, Utf8Case{"\xe2\x82z", 0},
                    Utf8Case{"\xf0\x8f\xbf\xbf", 0}, Utf8Case{"\xf0\x90\x80\x80", kGood},
                    Utf8Case{"\xf3\xbf\xbf\xbf", kGood}, Utf8Case{"\xf4\x8f\xbf\xbf", kGood},
                    Utf8Case{"\xf4\x90\x80\x80", 0}, Utf8Case{"\xf5\x80\x80\x80", 0}, Utf8Case{"\xff", 0},
                    Utf8Case{"\xf0\x9f\x98", 0}, Utf8Case{"caf\xc3\xa9 \xe2\x88\x92 \xf0\x9f\x98\x80\xfe", 14}));

TEST(NearestName, FindsTypingErrorsAndNothingElse) {
  const std::vector<std::string> names{"max-new-tokens", "limit", "seed", "seeds"};
  EXPECT_EQ(nearest_name("max-new-token", names), "max-new-tokens");
  EXPECT_EQ(nearest_name("max_new_tokens", names), "max-new-tokens");
  EXPECT_EQ(nearest_name("limti", names), "limit");
  EXPECT_EQ(nearest_name("sed", names), "seed");
  EXPECT_EQ(nearest_name("seeds", names), "seeds");
  EXPECT_EQ(nearest_name("temperature", names), "");
  EXPECT_EQ(nearest_name("limit", {}), "");
}

TEST(NearestName, DoesNotTakeOneWordForAnother) {
  const std::vector<std::string> names{"k", "on", "abc"};
  EXPECT_EQ(nearest_name("z", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("ox", names), "on");
}

TEST(DidYouMean, IsEmptyWhereNothingIsNear) {
  const std::vector<std::string> names{"limit"};
  EXPECT_EQ(did_you_mean("limt", names), ", did you mean 'limit'?");
  EXPECT_EQ(did_you_mean("offset", names), "");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,b", ','), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(split(",a,,", ','), (std::vector<std::string>{"", "a", "", ""}));
}

TEST(HumanBytes, ChangesUnitAfterRounding) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(1049), "1.0 kB");
  EXPECT_EQ(human_bytes(5.2e9), "5.2 GB");
  EXPECT_EQ(human_bytes(13476839424.0), "13.5 GB");
  EXPECT_EQ(human_bytes(999949), "999.9 kB");
  EXPECT_EQ(human_bytes(999999), "1.0 MB");  // not "1000.0 kB"
  EXPECT_EQ(human_bytes(999.7), "1.0 kB");
  EXPECT_EQ(human_bytes(2.5e15), "2500.0 TB");
}

TEST(WithCommas, GroupsByThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(~std::uint64_t{0}), "18,446,744,073,709,551,615");
}

// FIPS 180-4 examples: no bytes, one block, two blocks.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, PiecesGiveTheHashOfTheWhole) {
  Sha256 hash;
  hash.update("ab", 2);
  hash.update(nullptr, 0);
  hash.update("c", 1);
  EXPECT_EQ(hash.hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace kvdiv
