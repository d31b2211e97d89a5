// A tokenizer.model as an enemy would make it. The library trusts the table of its normalizer; kvdiv looks first.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "io/sentencepiece_charsmap.h"
#include "io/tokenizer_support.h"
#include "kvdiv/base/random.h"
#include "kvdiv/base/text.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}

/// A field of the wire format: a length-delimited one.
std::string field(unsigned tag_number, const std::string& bytes) {
  std::string out;
  const auto varint = [&](std::uint64_t n) {
    for (; n > 127; n >>= 7) out += static_cast<char>((n & 127) | 128);
    out += static_cast<char>(n);
  };
  varint(std::uint64_t{tag_number} << 3 | 2);
  varint(bytes.size());
  return out + bytes;
}

std::string piece(const std::string& text, float score, char type = 1) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &score, sizeof bits);
  return field(1, field(1, text) + '\x15' + number(bits) + '\x18' + type);
}

/// The trie of a normalizer that makes J of H: the root's child by 'H' is in block 1, that one's value in block 2.
struct Charsmap {
  std::vector<std::uint32_t> units = std::vector<std::uint32_t>(768, 0);
  std::string replacements = std::string("J\0", 2);

  static constexpr std::uint32_t kChild = 256 ^ 'H';
  static std::uint32_t node(std::uint32_t offset, bool has_value, char label) {
    return offset << 10 | (has_value ? 1u << 8 : 0u) | static_cast<unsigned char>(label);
  }
  Charsmap() {
    units[0] = node(256, false, 0);
    units[kChild] = node(kChild ^ 512, true, 'H');
    units[512] = 1u << 31 | 0;
  }
  std::string bytes() const {
    std::string out = number(static_cast<std::uint32_t>(4 * units.size()));
    for (const std::uint32_t unit : units) out += number(unit);
    return out + replacements;
  }
};

std::string model(const std::string& charsmap, float score = -1.0f, char model_type = 1, unsigned spec = 3) {
  const std::string pieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                             piece("\xE2\x96\x81", score) + piece("J", score) + piece("H", score) + piece("x", score);
  std::string out = pieces + field(2, std::string("\x18") + model_type);
  if (spec != 3) out += field(3, field(1, "identity"));
  return out + field(spec, field(1, "own") + field(2, charsmap));
}

std::string why(const std::string& bytes) {
  ModelDir dir;
  dir.write("tokenizer.model", bytes);
  return tokenizer_refusal(dir.path());
}

TEST(HostileTokenizer, ASmallNormalizerWorks) {
  ModelDir dir;
  dir.write("tokenizer.model", model(Charsmap().bytes()));
  const Tokenizer tokenizer = open_tokenizer(dir.path());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Hx")), "Jx");
  EXPECT_EQ(problem_of_charsmap(Charsmap().bytes()), "");
}

TEST(HostileTokenizer, ATableThatLeadsOutsideItselfIsRefused) {
  const auto changed = [](auto&& change) {
    Charsmap charsmap;
    change(charsmap);
    return charsmap.bytes();
  };
  const std::string good = Charsmap().bytes();
  const std::vector<std::pair<std::string, std::string>> cases{
      {"x", "too short"},
      {number(0) + Charsmap().replacements, "larger than it is"},
      {number(0xffffffff) + good.substr(4), "larger than it is"},
      {good.substr(0, 4 + 4 * 768), "larger than it is"},
      {number(4 * 767) + good.substr(4), "ends inside a block"},
      {good.substr(0, good.size() - 1), "last replacement has no end"},
      {changed([](Charsmap& c) { c.units[0] = Charsmap::node(768, false, 0); }), "leads outside itself"},
      {changed([](Charsmap& c) { c.units[0] = Charsmap::node(3, false, 0) | 0x200u; }), "leads outside itself"},
      {changed([](Charsmap& c) { c.units[767] = 0x7fffffffu; }), "leads outside itself"},
      {changed([](Charsmap& c) { c.units[512] = 1u << 31 | 2; }), "behind the last replacement"},
      {changed([](Charsmap& c) { c.units[512] = 0xffffffffu; }), "behind the last replacement"}};
  for (const auto& [bytes, words] : cases)
    for (const unsigned spec : {3u, 5u})  // the normalizer's table, and the one back
      EXPECT_THAT(why(model(bytes, -1.0f, 1, spec)),
                  AllOf(HasSubstr("tokenizer.model: the normalizer's precompiled_charsmap"), HasSubstr(words)))
          << words;
}

/// Twice, or in another wire type: the table that is checked is the one that the library takes.
TEST(HostileTokenizer, AGoodTableDoesNotHideABadOne) {
  Charsmap bad;
  bad.units[0] = Charsmap::node(1 << 20, false, 0);
  const std::string good = Charsmap().bytes(), model_of_bad = model(bad.bytes());
  EXPECT_THAT(why(model(good) + field(3, field(2, bad.bytes()))), HasSubstr("leads outside itself"));
  EXPECT_THAT(why(model_of_bad + field(3, "\x10\x01")), HasSubstr("leads outside itself")) << "a varint under its number";
  EXPECT_EQ(why(model_of_bad + field(3, field(2, good))), "no error") << "the last one counts";
}

/// Random tables, and random damage to a real one: refused, or walked without leaving them (a sanitizer would see it).
TEST(HostileTokenizer, DamagedTablesAreRefusedOrHarmless) {
  const std::vector<std::string> texts{"", "HHHH", "I saw a \xEF\xBC\xA8 girl \xE3\x8E\x91", "\xF0\x9F\x98\x80\xC2\xA0x"};
  const auto use = [&](const std::string& bytes) {
    ModelDir dir;
    dir.write("tokenizer.model", bytes);
    try {
      const Tokenizer tokenizer = open_tokenizer(dir.path());
      for (const std::string& text : texts) tokenizer.decode(tokenizer.encode(text));
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      return false;
    }
  };
  PythonRandom random(5);
  for (int i = 0; i < 300; ++i) {
    Charsmap charsmap;
    for (std::uint32_t& unit : charsmap.units)
      if (random.below(4) == 0) unit = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << (8 + random.below(25))));
    use(model(charsmap.bytes()));
  }
  int n_open = 0;
  for (int i = 0; i < 3'000; ++i) {
    Charsmap charsmap;
    charsmap.units[random.below(768)] ^= 1u << random.below(32);
    n_open += use(model(charsmap.bytes())) ? 1 : 0;
  }
  EXPECT_GT(n_open, 100);
  EXPECT_LT(n_open, 2'999);
}

TEST(HostileTokenizer, ScoresThatAreNoNumbersAndOtherKindsOfModelsDoNoHarm) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float score : {kNan, kInfinity, -kInfinity, 3e38f, -3e38f})
    for (const char type : {1, 2, 3, 4, 9}) {
      ModelDir dir;
      dir.write("tokenizer.model", model("", score, type));
      try {
        const Tokenizer tokenizer = open_tokenizer(dir.path());
        for (const char* text : {"", "HxJx", "x  x\xF0\x9F\x98\x80"}) tokenizer.decode(tokenizer.encode(text));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      }
    }
}

}  // namespace
}  // namespace kvdiv::test
