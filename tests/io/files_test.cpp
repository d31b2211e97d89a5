#include "kvdiv/io/files.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "io/io_support.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::string_literals;

std::string json_refusal(std::string_view text) {
  return refusal([&] { parse_json(text, "f.json"); });
}

TEST(ParseJson, KeepsValuesAndTheOrderOfKeys) {
  const Json json = parse_json(R"( {"b": [1, -2, 2.5, true, null, "ä"], "a": {"z": {}, "y": []}} )", "f.json");
  EXPECT_EQ(json.dump(), R"({"b":[1,-2,2.5,true,null,"ä"],"a":{"z":{},"y":[]}})");
  EXPECT_EQ(json["a"]["y"], Json::array());
  EXPECT_TRUE(json["b"][0].is_number_unsigned());
  EXPECT_EQ(parse_json("7", "f.json"), 7);
}

TEST(ParseJson, RefusesAKeyThatOccursTwice) {
  EXPECT_EQ(json_refusal(R"({"a": 1, "b": 2, "a": 1})"), "f.json: key 'a' occurs twice in one object");
  EXPECT_EQ(json_refusal(R"({"x": [{"k": {"deep": 1, "deep": 2}}]})"), "f.json: key 'deep' occurs twice in one object");
  EXPECT_EQ(json_refusal(R"({"a": 1, "\u0061": 1})"), "f.json: key 'a' occurs twice in one object");
  EXPECT_EQ(json_refusal(R"({"a": {"a": 1}, "b": {"a": 1}})"), "no error");
}

TEST(ParseJson, SaysWhereTheSyntaxBreaks) {
  EXPECT_THAT(json_refusal("{\n  \"a\": 1,\n  \"b\" 2\n}"),
              StartsWith("f.json: not JSON: line 3, column 7: syntax error"));
  EXPECT_THAT(json_refusal("{"), HasSubstr("line 1, column 2"));
  EXPECT_THAT(json_refusal(""), HasSubstr("unexpected end of input"));
  EXPECT_THAT(json_refusal("{} {}"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(json_refusal("[1e999]"), HasSubstr("number overflow"));
  EXPECT_THAT(json_refusal("[NaN]"), HasSubstr("not JSON"));
  EXPECT_THAT(json_refusal("[1,]"), HasSubstr("not JSON"));
  EXPECT_THAT(json_refusal("// x\n{}"), HasSubstr("not JSON"));
}

TEST(ParseJson, RefusesBytesThatAreNoText) {
  EXPECT_EQ(json_refusal("{\"a\": \"\xff\"}"), "f.json: not UTF-8 at byte 7");
  EXPECT_EQ(json_refusal("{\"a\": \"\xc0\x80\"}"), "f.json: not UTF-8 at byte 7");
  EXPECT_EQ(json_refusal("{}\0{broken"s), "f.json: not JSON: a NUL byte at byte 2");
}

TEST(ParseJson, LimitsTheNesting) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(json_refusal(nested(kMaxJsonDepth)), "no error");
  EXPECT_EQ(json_refusal(nested(kMaxJsonDepth + 1)), "f.json: more than 64 levels of nesting");
  EXPECT_EQ(json_refusal(nested(5'000'000)), "f.json: more than 64 levels of nesting");
  std::string objects;
  for (int i = 0; i < 70; ++i) objects += "{\"a\":";
  EXPECT_EQ(json_refusal(objects), "f.json: more than 64 levels of nesting");
}

TEST(ParseJson, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  EXPECT_EQ(parse_json(text + "}", "f.json").size(), 200'000u);
}

TEST(ReadJsonFile, NamesTheFileAndWhatItIs) {
  const TempDir dir;
  write_bytes(dir / "a.json", "{\"a\": 1}");
  EXPECT_EQ(read_json_file(dir / "a.json")["a"], 1);
  write_bytes(dir / "empty.json", "");
  EXPECT_THAT(refusal([&] { read_json_file(dir / "empty.json"); }), HasSubstr("empty.json: is empty"));
  write_bytes(dir / "lfs.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  EXPECT_THAT(refusal([&] { read_json_file(dir / "lfs.json"); }),
              AllOf(HasSubstr("lfs.json"), HasSubstr("Git-LFS pointer")));
  write_bytes(dir / "page.json", "<!DOCTYPE html><html>");
  EXPECT_THAT(refusal([&] { read_json_file(dir / "page.json"); }), HasSubstr("HTML page"));
  write_bytes(dir / "bad.json", "{\"a\" 1}");
  EXPECT_THAT(refusal([&] { read_json_file(dir / "bad.json"); }),
              HasSubstr((dir / "bad.json").string() + ": not JSON"));
}

TEST(ReadTextFile, ReadsBytesAsTheyAreUpToALimit) {
  const TempDir dir;
  write_bytes(dir / "t", "a\r\n\xff");
  EXPECT_EQ(read_text_file(dir / "t"), "a\r\n\xff");
  EXPECT_EQ(read_text_file(dir / "t", 4).size(), 4u);
  EXPECT_THAT(refusal([&] { read_text_file(dir / "t", 3); }), HasSubstr("4 bytes, expected at most 3"));
  EXPECT_THAT(refusal([&] { read_text_file(dir / "none"); }), HasSubstr("no such file"));
}

std::size_t n_entries(const fs::path& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator{}));
}

TEST(WriteAtomically, ReplacesTheWholeFileAndLeavesNothingElse) {
  const TempDir dir;
  write_text_file_atomically(dir / "r.json", "a long first text");
  write_text_file_atomically(dir / "r.json", "second");
  EXPECT_EQ(read_bytes(dir / "r.json"), "second");
  EXPECT_EQ(n_entries(dir.path()), 1u);
  struct stat status {};
  ASSERT_EQ(::stat((dir / "r.json").c_str(), &status), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

TEST(WriteAtomically, ALinkStaysOne) {
  const TempDir dir;
  write_text_file_atomically(dir / "file", "old");
  fs::create_symlink("file", dir / "link");
  write_text_file_atomically(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_text_file(dir / "file"), "new");
}

/// Root may rename a file over /dev/null.
TEST(WriteAtomically, WhatIsNoFileIsWrittenTo) {
  const TempDir dir;
  const fs::path pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream in(pipe);
    read.assign(std::istreambuf_iterator<char>(in), {});
  });
  const std::string text(300000, 'x');  // more than a pipe holds
  write_text_file_atomically(pipe, text);
  reader.join();
  EXPECT_EQ(read, text);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST(WriteAtomically, TheOldTextSurvivesAFailure) {
  const TempDir dir;
  write_text_file_atomically(dir / "r.json", "old");
  // A file size limit stands for the full disk: write() fails half-way.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small{1000, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = refusal([&] { write_text_file_atomically(dir / "r.json", std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_THAT(message, AllOf(HasSubstr("r.json: cannot be written"), HasSubstr("File too large")));
  EXPECT_EQ(read_bytes(dir / "r.json"), "old");
  EXPECT_EQ(n_entries(dir.path()), 1u);
}

TEST(WriteAtomically, SaysWhyItCannotBegin) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] { write_text_file_atomically(dir / "no" / "r.json", "x"); }),
              AllOf(HasSubstr("cannot be created"), HasSubstr("No such file or directory")));
  fs::create_directory(dir / "taken");
  EXPECT_THAT(refusal([&] { write_text_file_atomically(dir / "taken", "x"); }), HasSubstr("cannot be replaced"));
  EXPECT_EQ(n_entries(dir.path()), 1u);
}

TEST(DescribeForeignBytes, KnowsTheUsualMixUps) {
  EXPECT_THAT(describe_foreign_bytes("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(describe_foreign_bytes("<HTML><head>"), HasSubstr("HTML"));
  EXPECT_THAT(describe_foreign_bytes("PK\x03\x04rest"), HasSubstr("zip"));
  EXPECT_THAT(describe_foreign_bytes("\x80\x02}q"), HasSubstr("pickle"));
  EXPECT_THAT(describe_foreign_bytes("GGUF\x03"), HasSubstr("GGUF"));
  EXPECT_EQ(describe_foreign_bytes("{\"a\": 1}"), "");
  EXPECT_EQ(describe_foreign_bytes(""), "");
}

}  // namespace
}  // namespace kvdiv::test
