#include "kvdiv/io/checkpoint.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <string>

#include "io/io_support.h"
#include "kvdiv/base/text.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// A file of U8 tensors, one byte each: names "a,b" with values 'a', 'b' of their own first letters.
std::string shard_of_letters(const std::string& names) {
  std::string header = "{", data;
  for (const std::string& name : split(names, ',')) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                          data.empty() ? "" : ",", name, data.size(), data.size() + 1);
    data += name[0];
  }
  return safetensors_bytes(header + "}", data);
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { write_bytes(dir_ / "config.json", "{\"model_type\": \"llama\"}"); }

  void shard(const std::string& file, const std::string& names) { write_bytes(dir_ / file, shard_of_letters(names)); }
  void index(const std::string& weight_map) {
    write_bytes(dir_ / "model.safetensors.index.json",
                "{\"metadata\":{\"total_size\":4},\"weight_map\":" + weight_map + "}");
  }
  /// Shards 1 (a, b) and 2 (c) of a good checkpoint.
  void two_shards() {
    shard("model-00001-of-00002.safetensors", "a,b");
    shard("model-00002-of-00002.safetensors", "c");
    index(R"({"c":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors",
              "b":"model-00001-of-00002.safetensors"})");
  }
  std::string why() const {
    return refusal([&] { Checkpoint::open(dir_.path()); });
  }

  TempDir dir_;
};

TEST_F(CheckpointTest, ASingleFile) {
  shard("model.safetensors", "b,a");
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint.config()["model_type"], "llama");
  EXPECT_EQ(checkpoint.generation_config(), Json::object());
  EXPECT_EQ(checkpoint.weight_bytes(), 2u);
  EXPECT_THAT(checkpoint.dtypes_on_disk(), ElementsAre(Pair("U8", 2)));
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  const TensorView* b = checkpoint.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(static_cast<char>(*b->data), 'b');
  checkpoint.drop(*b);
  EXPECT_EQ(static_cast<char>(*b->data), 'b');
  EXPECT_EQ(checkpoint.weights_sha256(), sha256_hex(shard_of_letters("b,a")));
}

TEST_F(CheckpointTest, ShardsInFileNameOrder) {
  two_shards();
  write_bytes(dir_ / "generation_config.json", "{\"eos_token_id\": 2}");
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(checkpoint.generation_config()["eos_token_id"], 2);
  EXPECT_THAT(checkpoint.shards(),
              ElementsAre(dir_ / "model-00001-of-00002.safetensors", dir_ / "model-00002-of-00002.safetensors"));
  EXPECT_EQ(checkpoint.find("c")->shard, 1u);
  EXPECT_EQ(checkpoint.shard_of(*checkpoint.find("c")), "model-00002-of-00002.safetensors");
  EXPECT_EQ(checkpoint.weights_sha256(), sha256_hex(shard_of_letters("a,b") + shard_of_letters("c")));
  EXPECT_EQ(checkpoint.weights_sha256(), checkpoint.weights_sha256());
}

TEST_F(CheckpointTest, ItCanBeMoved) {
  shard("model.safetensors", "a");
  Checkpoint first = Checkpoint::open(dir_.path());
  const Checkpoint second = std::move(first);
  EXPECT_EQ(static_cast<char>(*second.find("a")->data), 'a');
}

TEST_F(CheckpointTest, TheSingleFileIsPreferredToTheIndexAsInTheReference) {
  two_shards();
  shard("model.safetensors", "x");
  EXPECT_THAT(Checkpoint::open(dir_.path()).names(), ElementsAre("x"));
}

TEST_F(CheckpointTest, StrayFilesAreIgnored) {
  two_shards();
  shard("extra.safetensors", "lm_head.weight,a");
  shard("consolidated.safetensors", "layers.0.attention.wk.weight");
  write_bytes(dir_ / "pytorch_model.bin", "PK");
  EXPECT_THAT(Checkpoint::open(dir_.path()).names(), ElementsAre("a", "b", "c"));
}

TEST_F(CheckpointTest, MissingShardsAreListed) {
  two_shards();
  fs::remove(dir_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(why(), AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("1 of 2 shards"),
                           HasSubstr("missing: model-00002-of-00002.safetensors")));
  fs::create_symlink("../../blobs/gone", dir_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(why(), HasSubstr("missing: model-00002-of-00002.safetensors"));
  fs::remove(dir_ / "model-00001-of-00002.safetensors");
  EXPECT_THAT(why(), HasSubstr("2 of 2 shards it lists are missing: model-00001-of-00002.safetensors, model-00002"));
}

TEST_F(CheckpointTest, IndexAndShardsMustAgreeTensorByTensor) {
  shard("m1.safetensors", "a,b");
  shard("m2.safetensors", "c");
  index(R"({"a":"m1.safetensors","b":"m2.safetensors","c":"m2.safetensors"})");
  EXPECT_THAT(why(), HasSubstr("tensor 'b' should be in m2.safetensors, but is in m1.safetensors"));
  index(R"({"a":"m1.safetensors","b":"m1.safetensors","c":"m2.safetensors","d":"m2.safetensors"})");
  EXPECT_THAT(why(), HasSubstr("tensor 'd' should be in m2.safetensors, but no shard has it"));
  index(R"({"a":"m1.safetensors","c":"m2.safetensors"})");
  EXPECT_THAT(why(), HasSubstr("tensor 'b' of m1.safetensors is not listed: the index is stale"));
  shard("m2.safetensors", "c,a");
  index(R"({"a":"m1.safetensors","b":"m1.safetensors","c":"m2.safetensors"})");
  EXPECT_THAT(why(), HasSubstr("tensor 'a' is in this file and in m1.safetensors too"));
}

TEST_F(CheckpointTest, AnIndexMustNotLeaveItsFolder) {
  shard("m1.safetensors", "a");
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "sub\\\\x.safetensors", "..",
                           "..\\\\x.safetensors"}) {
    index(std::string("{\"a\":\"") + name + "\"}");
    EXPECT_THAT(why(), AllOf(HasSubstr("weight_map: tensor 'a'"), HasSubstr("is not a plain file name"))) << name;
  }
  index(R"({"a":"config.json"})");
  EXPECT_THAT(why(), HasSubstr("tensor 'a': 'config.json' does not end in .safetensors"));
  index(R"({"a":""})");
  EXPECT_THAT(why(), HasSubstr("does not end in .safetensors"));
}

TEST_F(CheckpointTest, TheIndexHasTheRightTypes) {
  const auto why_index = [&](const std::string& text) {
    write_bytes(dir_ / "model.safetensors.index.json", text);
    return why();
  };
  EXPECT_THAT(why_index("{\"metadata\":{}}"), HasSubstr("index.json: key weight_map is missing"));
  EXPECT_THAT(why_index("{\"weight_map\":{}}"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(why_index("{\"weight_map\":[]}"), HasSubstr("weight_map: expected an object (tensor: file), found []"));
  EXPECT_THAT(why_index("{\"weight_map\":{\"a\":3}}"), HasSubstr("tensor 'a': expected a file name, found 3"));
  EXPECT_THAT(why_index("[]"), HasSubstr("expected a JSON object, found []"));
  EXPECT_THAT(why_index("{\"weight_map\""), HasSubstr("not JSON"));
  EXPECT_THAT(why_index(R"({"weight_map":{"a":"m1.safetensors","a":"m2.safetensors"}})"),
              HasSubstr("key 'a' occurs twice"));
}

TEST_F(CheckpointTest, WithoutWeightsItSaysWhatIsThereInstead) {
  std::set<std::string> messages;
  const auto expect = [&](const std::string& words) {
    EXPECT_THAT(why(), AllOf(HasSubstr("no model.safetensors and no model.safetensors.index.json"), HasSubstr(words)));
    messages.insert(why());
  };
  expect("the folder holds no weights");
  write_bytes(dir_ / "model.Q4.gguf", "GGUF");
  expect("only GGUF (model.Q4.gguf)");
  write_bytes(dir_ / "pytorch_model-00001-of-00002.bin", "PK");
  expect("only PyTorch files (pytorch_model-00001-of-00002.bin)");
  shard("weights.safetensors", "a");
  expect("but weights.safetensors: download the index");
  shard("consolidated.safetensors", "layers.0.attention.wk.weight");
  expect("names its tensors in another convention (layers.0.attention.wk.weight), which is not supported");
  EXPECT_EQ(messages.size(), 5u);
}

TEST_F(CheckpointTest, AnLfsPointerIsNamedAsOne) {
  const fs::path pointer = fs::path(KVDIV_TEST_ROOT) /
                           "tests/corpus/configs/mistral-7b-instruct-v0.3/model-00001-of-00003.safetensors.lfs-pointer";
  write_bytes(dir_ / "model.safetensors", read_bytes(pointer));
  EXPECT_THAT(why(), AllOf(HasSubstr("model.safetensors: is a Git-LFS pointer")));
}

TEST_F(CheckpointTest, ADanglingModelFileIsNotTakenForAbsent) {
  two_shards();
  fs::create_symlink("../../blobs/gone", dir_ / "model.safetensors");
  EXPECT_THAT(why(), HasSubstr("model.safetensors: is a link to ../../blobs/gone, which does not exist"));
}

TEST_F(CheckpointTest, ConfigJsonIsNeededAndIsAnObject) {
  shard("model.safetensors", "a");
  write_bytes(dir_ / "config.json", "[1]");
  EXPECT_THAT(why(), HasSubstr("config.json: expected a JSON object, found [1]"));
  write_bytes(dir_ / "config.json", "{\"a\":1,\"a\":2}");
  EXPECT_THAT(why(), HasSubstr("key 'a' occurs twice"));
  write_bytes(dir_ / "config.json", "{}");
  write_bytes(dir_ / "generation_config.json", "{");
  EXPECT_THAT(why(), HasSubstr("generation_config.json: not JSON"));
  fs::remove(dir_ / "config.json");
  EXPECT_THAT(why(), HasSubstr("no config.json"));
  EXPECT_THAT(refusal([&] { Checkpoint::open(dir_ / "nowhere"); }), HasSubstr("no such directory"));
  EXPECT_THAT(refusal([&] { Checkpoint::open(dir_ / "model.safetensors"); }),
              HasSubstr("is a file, expected the directory"));
}

TEST_F(CheckpointTest, AFileWithoutTensorsOpensAndHasNone) {
  write_bytes(dir_ / "model.safetensors", safetensors_bytes("{\"__metadata__\":{}}"));
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  EXPECT_TRUE(checkpoint.names().empty());
  EXPECT_EQ(checkpoint.weight_bytes(), 0u);
}

TEST_F(CheckpointTest, ABf16TensorAtAnOddOffsetKeepsItsBits) {
  // −4.2617e-6, 1e-8, 70144 and 1 as BF16, behind a header of odd length.
  const unsigned char data[] = {0x8f, 0xb6, 0x2c, 0x32, 0x89, 0x47, 0x80, 0x3f};
  std::string header = R"({"t":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
  if (header.size() % 2 == 0) header += ' ';
  write_bytes(dir_ / "model.safetensors",
              safetensors_bytes(header, std::string_view(reinterpret_cast<const char*>(data), sizeof data)));
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  const TensorView* t = checkpoint.find("t");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t->data) % 2, 1u);
  EXPECT_EQ(std::memcmp(t->data, data, sizeof data), 0);
}

TEST(CheckpointFiles, TheShippedToyOpens) {
  const Checkpoint toy = Checkpoint::open(fs::path(KVDIV_TEST_ROOT) / "data/models/toy-llama");
  EXPECT_EQ(toy.names().size(), 47u);
  EXPECT_THAT(toy.dtypes_on_disk(), ElementsAre(Pair("F32", 47)));
  EXPECT_THAT(toy.find("model.embed_tokens.weight")->info.shape, ElementsAre(512, 64));
  EXPECT_EQ(toy.find("lm_head.weight"), nullptr);
  EXPECT_EQ(toy.weights_sha256(), sha256_hex(read_bytes(toy.path() / "model.safetensors")));
}

}  // namespace
}  // namespace kvdiv::test
