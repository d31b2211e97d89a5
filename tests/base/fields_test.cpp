#include "kvdiv/base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kvdiv/base/field_info.h"

namespace kvdiv {
namespace {

using testing::HasSubstr;

struct Inner {
  std::int32_t count = 3;
  std::optional<std::string> note;
};
template <class V>
void describe_fields(V& v, Inner& s) {
  v.field("count", s.count, "how many");
  v.field("note", s.note);
}

struct Outer {
  bool flag = false;
  std::int64_t max_steps = 7;
  std::uint8_t small = 0;
  double rate = 0.5;
  std::string name = "x";
  DType dtype = DType::float16;
  std::optional<double> limit;
  std::vector<std::int64_t> ids;
  std::vector<DType> dtypes;
  std::vector<Inner> inners;
  std::optional<Inner> maybe;
  std::vector<std::optional<std::int64_t>> gaps;
  std::vector<std::vector<double>> table;
  std::vector<bool> bits;
  Inner inner;
  Json extra = Json::object();
};
template <class V>
void describe_fields(V& v, Outer& s) {
  v.field("flag", s.flag);
  v.field("max-steps", s.max_steps, "steps");
  v.field("small", s.small);
  v.field("rate", s.rate);
  v.field("name", s.name);
  v.field("dtype", s.dtype);
  v.field("limit", s.limit);
  v.field("ids", s.ids);
  v.field("dtypes", s.dtypes);
  v.field("inners", s.inners);
  v.field("maybe", s.maybe);
  v.field("gaps", s.gaps);
  v.field("table", s.table);
  v.field("bits", s.bits);
  v.field("inner", s.inner);
  v.field("extra", s.extra);
}

Outer full() {
  Outer s;
  s.flag = true;
  s.max_steps = std::numeric_limits<std::int64_t>::min();
  s.small = 255;
  s.rate = 0.1;
  s.name = "caf\xc3\xa9 \"quoted\"\n";
  s.dtype = DType::bfloat16;
  s.limit = 1e-300;
  s.ids = {0, -1, std::numeric_limits<std::int64_t>::max()};
  s.dtypes = {DType::float64, DType::float32};
  s.inners = {{1, "a"}, {2, std::nullopt}};
  s.maybe = Inner{9, ""};
  s.gaps = {1, std::nullopt};
  s.table = {{1.5}, {}};
  s.bits = {true, false};
  s.inner = {-4, "z"};
  s.extra = Json{{"b", 1}, {"a", nullptr}};
  return s;
}

template <class T>
T read(const char* text, T value = {}) {
  from_json_value(Json::parse(text), value, "file.json");
  return value;
}

template <class T>
std::string message_of(const char* text) {
  try {
    read<T>(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    return error.what();
  }
  return "no error";
}

TEST(Fields, RoundTripThroughText) {
  const Json first = to_json_value(full());
  const Outer back = read<Outer>(first.dump().c_str());
  EXPECT_EQ(to_json_value(back), first);
  EXPECT_EQ(to_json_value(back).dump(), first.dump());
  EXPECT_EQ(back.ids, full().ids);
  EXPECT_EQ(back.rate, 0.1);
  EXPECT_EQ(*back.limit, 1e-300);
  EXPECT_FALSE(back.gaps[1].has_value());
  EXPECT_EQ(back.maybe->note, "");
}

TEST(Fields, DefaultsRoundTripToo) {
  const Json first = to_json_value(Outer{});
  EXPECT_EQ(to_json_value(read<Outer>(first.dump().c_str(), full())), first);
}

TEST(Fields, KeysKeepTheirOrderAndBecomeSnakeCase) {
  EXPECT_EQ(to_json_value(Inner{}).dump(), R"({"count":3,"note":null})");
  EXPECT_TRUE(to_json_value(Outer{}).contains("max_steps"));
  EXPECT_EQ(field_keys<Outer>()[1], "max-steps");
  EXPECT_EQ(field_keys<Inner>(), (std::vector<std::string>{"count", "note"}));
}

TEST(Fields, NonFiniteNumbersAreNullAndComeBackAsNan) {
  Outer s;
  for (double value :
       {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    s.rate = value;
    s.table = {{value, 1.0}};
    const Json j = to_json_value(s);
    EXPECT_TRUE(j["rate"].is_null());
    EXPECT_TRUE(j["table"][0][0].is_null());
    EXPECT_TRUE(std::isnan(read<Outer>(j.dump().c_str()).rate));
  }
}

TEST(Fields, NegativeZeroKeepsItsSign) {
  Outer s;
  s.rate = -0.0;
  EXPECT_TRUE(std::signbit(read<Outer>(to_json_value(s).dump().c_str()).rate));
}

TEST(Fields, AbsentKeysKeepTheirValueAndUnknownOnesAreLeftAlone) {
  const Outer s = read<Outer>(R"({"rate": 2, "surprise": [1]})", full());
  EXPECT_EQ(s.rate, 2.0);
  EXPECT_EQ(s.ids, full().ids);
}

TEST(Fields, WrongTypesNameThePathTheExpectationAndTheFinding) {
  EXPECT_EQ(message_of<Outer>("[]"), "file.json: expected an object, found []");
  EXPECT_EQ(message_of<Outer>(R"({"flag": 1})"), "file.json.flag: expected true or false, found 1");
  EXPECT_EQ(message_of<Outer>(R"({"max_steps": 1.5})"), "file.json.max_steps: expected an integer, found 1.5");
  EXPECT_EQ(message_of<Outer>(R"({"max_steps": true})"), "file.json.max_steps: expected an integer, found true");
  EXPECT_EQ(message_of<Outer>(R"({"max_steps": null})"), "file.json.max_steps: expected an integer, found null");
  EXPECT_EQ(message_of<Outer>(R"({"rate": "1"})"), "file.json.rate: expected a number, found \"1\"");
  EXPECT_EQ(message_of<Outer>(R"({"name": 5})"), "file.json.name: expected a text, found 5");
  EXPECT_EQ(message_of<Outer>(R"({"ids": 5})"), "file.json.ids: expected a list, found 5");
  EXPECT_EQ(message_of<Outer>(R"({"ids": [1, "2"]})"), "file.json.ids[1]: expected an integer, found \"2\"");
  EXPECT_EQ(message_of<Outer>(R"({"inners": [{}, {"count": []}]})"),
            "file.json.inners[1].count: expected an integer, found []");
  EXPECT_EQ(message_of<Outer>(R"({"inner": {"note": 1}})"), "file.json.inner.note: expected a text, found 1");
  EXPECT_EQ(message_of<Outer>(R"({"dtype": "float8"})"),
            "file.json.dtype: expected one of float16, bfloat16, float32, float64, found \"float8\"");
  EXPECT_THAT(message_of<Outer>(R"({"dtype": 16})"), HasSubstr("expected one of float16"));
}

TEST(Fields, IntegersThatDoNotFitAreRefused) {
  EXPECT_THAT(message_of<Outer>(R"({"small": 256})"), HasSubstr("file.json.small: expected an integer that fits"));
  EXPECT_THAT(message_of<Outer>(R"({"small": -1})"), HasSubstr("expected an integer that fits"));
  EXPECT_THAT(message_of<Outer>(R"({"max_steps": 9223372036854775808})"), HasSubstr("expected an integer that fits"));
  EXPECT_THAT(message_of<Outer>(R"({"inner": {"count": 2147483648}})"), HasSubstr("expected an integer that fits"));
  EXPECT_EQ(read<Outer>(R"({"max_steps": 9223372036854775807})").max_steps, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(read<Outer>(R"({"inner": {"count": -2147483648}})").inner.count, std::numeric_limits<std::int32_t>::min());
}

struct Lists {
  std::vector<double> sizes{0.5, 2.0};
  std::vector<std::int64_t> ids;
  std::vector<DType> dtypes;
  std::vector<std::string> names;
};
template <class V>
void describe_fields(V& v, Lists& s) {
  v.field("sizes", s.sizes, "numbers");
  v.field("ids", s.ids);
  v.field("dtypes", s.dtypes);
  v.field("names", s.names);
}

TEST(Fields, ListsOfNumbersAreCommaSeparatedFlags) {
  const auto infos = field_infos<Lists>();
  EXPECT_EQ(infos[0].kind, FieldKind::list_number);
  EXPECT_EQ(infos[0].default_value, Json::parse("[0.5, 2.0]"));
  EXPECT_EQ(infos[1].kind, FieldKind::list_integer);
  EXPECT_EQ(infos[2].kind, FieldKind::list_text);
  EXPECT_EQ(infos[3].kind, FieldKind::texts);
  EXPECT_TRUE(is_comma_list(infos[0].kind) && is_comma_list(infos[1].kind) && is_comma_list(infos[2].kind));
  EXPECT_FALSE(is_comma_list(infos[3].kind) || is_comma_list(FieldKind::number));

  Lists lists;
  from_json_value(Json{{"sizes", parse_flag(infos[0], {"1e-3,4,0.25"})}}, lists, "flags");
  EXPECT_EQ(lists.sizes, (std::vector<double>{1e-3, 4.0, 0.25}));
  const auto message = [&](const char* text) -> std::string {
    try {
      parse_flag(infos[0], {text});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("1,x"), "--sizes: expected a number, found 'x'");
  EXPECT_EQ(message("1,"), "--sizes: expected a number, found ''");
  EXPECT_EQ(message("inf"), "--sizes: expected a finite number, found 'inf'");
  EXPECT_EQ(message("0.5,5e-1"), "--sizes: '5e-1' is given twice");
}

TEST(Fields, LongFindingsAreCutBetweenCharacters) {
  std::string text = "\"";
  for (int i = 0; i < 200; ++i) text += "\xe2\x82\xac";
  text += "\"";
  for (int shift = 0; shift < 3; ++shift) {
    const std::string found = message_of<Inner>(
        ("{\"count\": \"" + std::string(static_cast<std::size_t>(shift), 'a') + text.substr(1) + "}").c_str());
    EXPECT_LT(found.size(), 130u);
    EXPECT_TRUE(is_valid_utf8(found)) << found;
    EXPECT_TRUE(found.ends_with("...")) << found;
  }
}

TEST(Fields, FindingsWithBrokenTextAreStillReported) {
  Inner inner;
  try {
    from_json_value(Json{{"count", "\xff"}}, inner, "memory");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory.count: expected an integer"));
  }
}

}  // namespace
}  // namespace kvdiv
