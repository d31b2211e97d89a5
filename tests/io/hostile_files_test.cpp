// A model folder as an enemy, or a torn download, would make it: what is no regular file, links, names that lead elsewhere,
// files that are larger than memory or shrink while they are read. Each is one line of an Error, at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/io_support.h"
#include "kvdiv/io/checkpoint.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/mapped_file.h"
#include "kvdiv/io/prompts.h"
#include "kvdiv/io/tokenizer.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string tensor_file(const std::string& name, const std::string& dtype = "U8", const std::string& data = "x") {
  const std::size_t n = data.size() / (dtype == "U8" ? 1 : 2);
  return safetensors_bytes(fmt::format(R"({{"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", name, dtype, n,
                                       data.size()),
                           data);
}

/// A folder that opens, with a tokenizer and prompts beside it, and what opening everything in it says.
class HostileFolder : public testing::Test {
 protected:
  HostileFolder() { make_whole(); }

  void make_whole() {
    fs::remove_all(dir_.path());
    fs::create_directories(dir_.path());
    write_bytes(dir_ / "config.json", "{}");
    write_bytes(dir_ / "model.safetensors", tensor_file("a"));
    const fs::path toy = KVDIV_TEST_ROOT "/data/models/toy-llama";
    for (const char* name : {"tokenizer.model", "tokenizer_config.json"}) fs::copy_file(toy / name, dir_ / name);
    write_bytes(dir_ / "prompts.jsonl", "{\"ids\":[1]}\n");
  }
  void shards(const std::string& weight_map) {
    fs::remove(dir_ / "model.safetensors");
    write_bytes(dir_ / kIndex, "{\"weight_map\":" + weight_map + "}");
  }
  std::string why() const {
    const std::string message = refusal([&] {
      Checkpoint::open(dir_.path());
      Tokenizer::open(dir_.path());
      PromptParams params;
      params.prompts = (dir_ / "prompts.jsonl").string();
      load_prompts(params, nullptr, dir_.path(), 100);
    });
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
    EXPECT_LT(message.size(), 1000u) << message;
    return message;
  }

  TempDir dir_;
};

TEST_F(HostileFolder, OpensAsLongAsNothingIsWrong) { EXPECT_EQ(why(), "no error"); }

/// Whichever file it stands for: named, and not waited for.
TEST_F(HostileFolder, WhatIsNoRegularFileIsNamed) {
  const std::map<std::string, std::function<void(const fs::path&)>> kinds{
      {"is a directory", [](const fs::path& path) { fs::create_directory(path); }},
      {"is not a regular file", [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
      {"is not a regular file (", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }},
      {"is not a regular file (a", [](const fs::path& path) { fs::create_symlink("/dev/full", path); }},
      {"cannot be opened", [](const fs::path& path) { fs::create_symlink(path.filename(), path); }},
      {"which does not exist", [](const fs::path& path) { fs::create_symlink("../../blobs/gone", path); }}};
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.model",
                           "tokenizer_config.json", "prompts.jsonl"})
    for (const auto& [words, make] : kinds) {
      make_whole();
      fs::remove(dir_ / name);
      make(dir_ / name);
      EXPECT_THAT(why(), AllOf(HasSubstr(std::string("/") + name + ": "), HasSubstr(words))) << name << " " << words;
    }
}

TEST_F(HostileFolder, AShardThatIsNoRegularFileIsNamed) {
  shards(R"({"a":"m1.safetensors"})");
  ASSERT_EQ(::mkfifo((dir_ / "m1.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(why(), HasSubstr("m1.safetensors: is not a regular file"));
  fs::remove(dir_ / "m1.safetensors");
  fs::create_symlink("/dev/zero", dir_ / "m1.safetensors");
  EXPECT_THAT(why(), HasSubstr("m1.safetensors: is not a regular file"));
  fs::remove(dir_ / "m1.safetensors");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (dir_ / "m1.safetensors").string();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::copy(path.begin(), path.end(), address.sun_path);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(why(), HasSubstr("m1.safetensors: cannot be opened"));
  ::close(fd);
}

/// Every file of a download in the Hugging Face cache is a link out of its folder; the index's names are not links.
TEST_F(HostileFolder, LinksIntoACacheAreFollowedAndNamesAreNot) {
  const fs::path snapshot = dir_ / "models--a--b/snapshots/0123", blobs = dir_ / "models--a--b/blobs";
  write_bytes(blobs / "c", "{}");
  write_bytes(blobs / "w", tensor_file("a"));
  write_bytes(blobs / "i", R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/c", snapshot / "config.json");
  fs::create_symlink("../../blobs/w", snapshot / "model-00001-of-00001.safetensors");
  fs::create_symlink("../../blobs/i", snapshot / kIndex);
  EXPECT_THAT(Checkpoint::open(snapshot).names(), ElementsAre("a"));
  const std::array<std::string, 7> names{"../../blobs/w.safetensors", "/etc/w.safetensors", "..safetensors",
                                         "./w.safetensors",           "w/.safetensors",     "..\\\\w.safetensors",
                                         "a/../w.safetensors"};
  for (const std::string& name : names) {
    shards("{\"a\":\"" + name + "\"}");
    EXPECT_THAT(why(), HasSubstr("is not a plain file name")) << name;
  }
}

/// The C library would open what stands in front of a NUL byte, and a terminal obey what follows an escape.
TEST_F(HostileFolder, NamesInAnIndexHoldNoControlCharacters) {
  write_bytes(dir_ / "m1.safetensors", tensor_file("a"));
  for (const char* name : {"m1.safetensors\\u0000.safetensors", "\\u001b[2Jm1.safetensors", "a\\nb.safetensors",
                           "\\u007f.safetensors"}) {
    shards(std::string("{\"a\":\"") + name + "\"}");
    const std::string message = why();
    EXPECT_THAT(message, AllOf(HasSubstr("tensor 'a'"), HasSubstr("is not a plain file name"))) << name;
    EXPECT_THAT(message, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr(std::string(1, '\0'))))) << name;
  }
}

TEST_F(HostileFolder, NamesInMessagesAreShort) {
  const std::string name = std::string(100'000, 'n') + ".safetensors";
  shards("{\"a\":\"" + name + "\"}");
  EXPECT_THAT(why(), HasSubstr("1 of 1 shards it lists are missing: nnn"));
  shards("{\"" + std::string(100'000, 't') + "\":\"../\"}");
  EXPECT_THAT(why(), HasSubstr("tensor 'ttt"));
  shards("{\"a\":\"m1.safetensors\"}");
  write_bytes(dir_ / "m1.safetensors", tensor_file(std::string(100'000, 'u')));
  EXPECT_THAT(why(), HasSubstr("tensor 'a' should be in m1.safetensors, but no shard has it"));
}

TEST_F(HostileFolder, EmptyFilesAreNamed) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json",
                           "prompts.jsonl"}) {
    make_whole();
    write_bytes(dir_ / name, "");
    EXPECT_THAT(why(), HasSubstr(name)) << name;
  }
}

/// A terabyte that takes no room on disk: refused by what it says, not read to its end.
TEST_F(HostileFolder, AHugeSparseFileIsRefusedUnread) {
  const std::map<std::string, std::string> words{{"config.json", "1,099,511,627,776 bytes, expected at most 67,108,864"},
                                                 {"model.safetensors", "header length is 0"},
                                                 {"tokenizer.model", "1,099,511,627,776 bytes, expected at most"},
                                                 {"prompts.jsonl", "1,099,511,627,776 bytes, expected at most"}};
  for (const auto& [name, expected] : words) {
    make_whole();
    write_bytes(dir_ / name, "");
    std::error_code error;
    fs::resize_file(dir_ / name, std::uintmax_t{1} << 40, error);
    if (error) GTEST_SKIP() << "no file of a terabyte on this file system: " << error.message();
    EXPECT_THAT(why(), AllOf(HasSubstr(name), testing::AnyOf(HasSubstr(expected), HasSubstr("cannot be mapped"))));
  }
  // A header that is right about a terabyte of zeros: it opens, and nothing of the data is touched.
  make_whole();
  const std::string header = R"({"a":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})";
  write_bytes(dir_ / "model.safetensors", safetensors_bytes(header));
  fs::resize_file(dir_ / "model.safetensors", 8 + header.size() + (std::uintmax_t{1} << 40));
  EXPECT_THAT(why(), testing::AnyOf("no error", HasSubstr("cannot be mapped")));
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kForksSafely = false;
#else
constexpr bool kForksSafely = true;
#endif

/// The kernel has no page to give any more: not a core dump, but the file's name and the exit code of an unreadable file.
TEST_F(HostileFolder, AFileThatIsCutOffWhileItIsReadEndsWithOneLine) {
  if (!kForksSafely) GTEST_SKIP() << "forks, which a process under ThreadSanitizer must not";
  const fs::path path = dir_ / "model.safetensors";
  write_bytes(path, tensor_file("a", "U8", std::string(1 << 20, 'x')));
  const auto read_cut_off = [&] {
    const Checkpoint checkpoint = Checkpoint::open(dir_.path());
    MappedFile other(dir_ / "config.json");
    other = MappedFile(dir_ / "prompts.jsonl");  // the line is about the file that is read, not about another
    if (::truncate(path.c_str(), 100) != 0) ::_exit(99);
    std::fprintf(stderr, "%s", checkpoint.weights_sha256().c_str());
    ::_exit(0);
  };
  EXPECT_EXIT(read_cut_off(), testing::ExitedWithCode(3),
              "^kvdiv: .*model.safetensors: was cut off while it was read; finish writing it, then try again\n$");
}

/// Files are mapped and given back by several threads, and more of them at once than the handler knows.
TEST_F(HostileFolder, AnyNumberOfFilesMayBeMappedByAnyThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        std::vector<MappedFile> files;
        for (int k = 0; k < 400; ++k) files.emplace_back(dir_ / "config.json");
        for (const MappedFile& file : files) ASSERT_EQ(file.bytes().size(), 2u);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(why(), "no error");
}

/// A bus error elsewhere is none of our business: the process dies of it as it would have.
TEST_F(HostileFolder, AnotherBusErrorIsNotOurs) {
  if (!kForksSafely) GTEST_SKIP() << "forks, which a process under ThreadSanitizer must not";
  const MappedFile file(dir_ / "config.json");
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);
        ::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

/// B61 for the other 16-bit type: an odd address keeps its bits.
TEST_F(HostileFolder, AnF16TensorAtAnOddOffsetKeepsItsBits) {
  for (const bool odd : {false, true}) {
    std::string header = R"({"t":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
    if ((header.size() % 2 == 1) != odd) header += ' ';
    const std::string data("\xff\x7b\x01\x80", 4);
    write_bytes(dir_ / "model.safetensors", safetensors_bytes(header, data));
    const Checkpoint checkpoint = Checkpoint::open(dir_.path());
    const TensorView* t = checkpoint.find("t");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t->data) % 2 == 1, odd);
    EXPECT_EQ(std::memcmp(t->data, data.data(), data.size()), 0);
  }
}

/// B65: nothing but the other convention's file.
TEST_F(HostileFolder, OnlyConsolidatedIsCalledAnotherConvention) {
  fs::remove(dir_ / "model.safetensors");
  write_bytes(dir_ / "consolidated.safetensors", tensor_file("layers.0.attention.wk.weight"));
  EXPECT_THAT(why(), AllOf(HasSubstr("consolidated.safetensors names its tensors in another convention"),
                           HasSubstr("not supported")));
}

/// B78: tokenizer.json is never read, whichever way its merges are spelled, or if it has none.
TEST_F(HostileFolder, TokenizerJsonChangesNothing) {
  const auto ids = Tokenizer::open(dir_.path())->encode("Once upon a time");
  for (const char* merges : {R"(["a b","c d"])", R"([["a","b"],["c ","d"]])", "[]", "null"}) {
    write_bytes(dir_ / "tokenizer.json", std::string(R"({"model":{"type":"BPE","merges":)") + merges + "}}");
    EXPECT_EQ(Tokenizer::open(dir_.path())->encode("Once upon a time"), ids) << merges;
  }
  fs::remove(dir_ / "tokenizer.model");
  EXPECT_FALSE(Tokenizer::open(dir_.path()).has_value()) << "prompts come as ids then";
}

}  // namespace
}  // namespace kvdiv::test
