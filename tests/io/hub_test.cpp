#include "kvdiv/io/hub.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "io/io_support.h"
#include "kvdiv/io/model_catalog.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kModels = R"({"models": {
  "llama2": {"repo": "meta-llama/Llama-2-7b-hf", "architecture": "LlamaForCausalLM", "toy": "toy-llama", "gated": true},
  "gemma2": {"repo": "google/gemma-2-2b", "architecture": "Gemma2ForCausalLM", "toy": "toy-gemma2", "gated": true}}})";

/// Caches and data of its own: nothing of the machine's is seen.
class HubTest : public ::testing::Test {
 protected:
  HubTest() {
    write_bytes(dir_ / "kv/configs/models.json", kModels);
    write_bytes(dir_ / "kv/data/models/toy-llama/config.json", "{\"architectures\": [\"LlamaForCausalLM\"]}");
    write_bytes(dir_ / "kv/data/models/toy-llama/model.safetensors", "12345");
  }
  void snapshot(const std::string& repo_folder, const std::string& commit, const std::string& config = "{}") {
    write_bytes(dir_ / ("home/.cache/huggingface/hub/" + repo_folder + "/snapshots/" + commit + "/config.json"),
                config);
  }
  fs::path hub() const { return dir_ / "home/.cache/huggingface/hub"; }
  DataPaths data() const { return {dir_ / "kv/configs", dir_ / "kv/data"}; }
  std::string why(const std::string& name) const {
    return refusal([&] { resolve_model(name, data()); });
  }

  TempDir dir_;
  ScopedEnv home_{"HOME", (dir_ / "home").c_str()}, xdg_{"XDG_CACHE_HOME", nullptr}, hf_home_{"HF_HOME", nullptr},
      hub_cache_{"HF_HUB_CACHE", nullptr}, old_hub_cache_{"HUGGINGFACE_HUB_CACHE", nullptr};
};

TEST_F(HubTest, ADirectoryWithConfigJsonComesFirst) {
  write_bytes(dir_ / "mine/config.json", "{}");
  const ResolvedModel model = resolve_model((dir_ / "mine").string(), data());
  EXPECT_EQ(model.path, dir_ / "mine");
  EXPECT_EQ(model.org_name, "");
  fs::create_directory(dir_ / "bare");
  EXPECT_THAT(why((dir_ / "bare").string()), HasSubstr("a directory without config.json"));
  EXPECT_THAT(why((dir_ / "mine/config.json").string()), HasSubstr("is a file, expected the directory"));
  EXPECT_THAT(why((dir_ / "nowhere").string()), HasSubstr("no such directory"));
  EXPECT_THAT(why(""), HasSubstr("name is empty"));
}

TEST_F(HubTest, ToysAreFoundByNameOnly) {
  EXPECT_EQ(resolve_model("toy-llama", data()).path, dir_ / "kv/data/models/toy-llama");
  EXPECT_THAT(why("toy-lama"), AllOf(HasSubstr("model 'toy-lama' is unknown, did you mean 'toy-llama'?"),
                                     HasSubstr("gemma2, llama2, toy-llama")));
  EXPECT_THAT(why("../models/toy-llama"), HasSubstr("no such directory"));
  EXPECT_THAT(why(".."), Not(HasSubstr("no error")));
}

TEST_F(HubTest, ARealModelIsNeverReplacedByAToy) {
  const std::string message = why("llama2");
  EXPECT_THAT(message, AllOf(HasSubstr("model llama2 (meta-llama/Llama-2-7b-hf) is not on this machine"),
                             HasSubstr("hf download meta-llama/Llama-2-7b-hf --include \"*.safetensors\" \"*.json\" "
                                       "\"tokenizer.model\""),
                             HasSubstr("gated"), HasSubstr("hf auth login"), HasSubstr("--model toy-llama")));
  EXPECT_LE(std::count(message.begin(), message.end(), '\n'), 1);
  EXPECT_THAT(why("gemma2"), HasSubstr("--model toy-gemma2"));
  EXPECT_THAT(why("google/gemma-2-2b"), AllOf(HasSubstr("model google/gemma-2-2b is not"), HasSubstr("toy-gemma2")));
  EXPECT_THAT(why("someone/My-Mistral.v2"),
              AllOf(HasSubstr("hf download someone/My-Mistral.v2"), HasSubstr("toy-mistral")));
}

TEST_F(HubTest, RefsMainNamesTheSnapshot) {
  snapshot("models--meta-llama--Llama-2-7b-hf", "aaa");
  snapshot("models--meta-llama--Llama-2-7b-hf", "bbb");
  write_bytes(hub() / "models--meta-llama--Llama-2-7b-hf/refs/main", "aaa\n");
  for (const char* name : {"llama2", "meta-llama/Llama-2-7b-hf"}) {
    const ResolvedModel model = resolve_model(name, data());
    EXPECT_EQ(model.path, hub() / "models--meta-llama--Llama-2-7b-hf/snapshots/aaa");
    EXPECT_EQ(model.org_name, "meta-llama/Llama-2-7b-hf");
    EXPECT_EQ(model.name, name);
  }
}

TEST_F(HubTest, WithoutAUsableRefTheNewestSnapshotIsTaken) {
  const std::string repo = "models--google--gemma-2-2b";
  for (const char* commit : {"aaa", "bbb", "ccc", "ddd"}) snapshot(repo, commit);
  fs::remove(hub() / repo / "snapshots/ddd/config.json");
  const auto now = fs::file_time_type::clock::now();
  const auto set_age = [&](const char* commit, int hours) {
    fs::last_write_time(hub() / repo / "snapshots" / commit, now - std::chrono::hours(hours));
  };
  set_age("aaa", 5), set_age("bbb", 1), set_age("ccc", 9), set_age("ddd", 0);
  EXPECT_EQ(find_snapshot(hub(), "google/gemma-2-2b"), hub() / repo / "snapshots/bbb");
  write_bytes(hub() / repo / "refs/main", "gone");
  EXPECT_EQ(find_snapshot(hub(), "google/gemma-2-2b"), hub() / repo / "snapshots/bbb");
  write_bytes(hub() / repo / "refs/main", "../snapshots/ccc");
  EXPECT_EQ(find_snapshot(hub(), "google/gemma-2-2b"), hub() / repo / "snapshots/bbb");
  set_age("aaa", 1);  // equally new: the last name, whatever the order on disk
  EXPECT_EQ(find_snapshot(hub(), "google/gemma-2-2b"), hub() / repo / "snapshots/bbb");
}

TEST_F(HubTest, AnUnfinishedDownloadIsCalledThat) {
  fs::create_directories(hub() / "models--google--gemma-2-2b/blobs");
  EXPECT_THAT(why("gemma2"), HasSubstr("its download is incomplete"));
}

TEST_F(HubTest, TheCacheIsWhereTheVariablesSay) {
  EXPECT_EQ(hub_cache_dir(), dir_ / "home/.cache/huggingface/hub");
  EXPECT_EQ(local_models_dir(), dir_ / "home/.cache/kvdiv/models");
  const ScopedEnv xdg("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(hub_cache_dir(), "/x/huggingface/hub");
  EXPECT_EQ(local_models_dir(), "/x/kvdiv/models");
  const ScopedEnv hf_home("HF_HOME", "~/hf");
  EXPECT_EQ(hub_cache_dir(), dir_ / "home/hf/hub");
  const ScopedEnv cache("HF_HUB_CACHE", "/c");
  EXPECT_EQ(hub_cache_dir(), "/c");
}

TEST_F(HubTest, ScriptMadeModelsAreFoundByName) {
  EXPECT_THAT(why("smollm2-135m-f16"), HasSubstr("scripts/get_smollm2"));
  write_bytes(dir_ / "home/.cache/kvdiv/models/smollm2-135m-f16/config.json", "{}");
  EXPECT_EQ(resolve_model("smollm2-135m-f16", data()).path, dir_ / "home/.cache/kvdiv/models/smollm2-135m-f16");
}

TEST_F(HubTest, ListsToysAliasesAndCaches) {
  snapshot("models--google--gemma-2-2b", "abc", "{\"architectures\": [\"Gemma2ForCausalLM\"]}");
  write_bytes(hub() / "models--google--gemma-2-2b/snapshots/abc/model.safetensors", "123");
  snapshot("models--someone--thing", "abc", "{broken");
  snapshot("datasets--someone--data", "abc");
  write_bytes(dir_ / "home/.cache/kvdiv/models/smollm2-135m-f16/config.json", "{\"model_type\": \"llama\"}");
  const auto models = list_models(data());
  std::vector<std::string> names;
  for (const auto& model : models) names.push_back(model.kind + " " + model.name);
  ASSERT_THAT(names, ElementsAre("toy toy-llama", "alias gemma2", "alias llama2", "local smollm2-135m-f16",
                                 "hub someone/thing"));
  EXPECT_EQ(models[0].bytes, 5u);
  EXPECT_EQ(models[0].architecture, "LlamaForCausalLM");
  EXPECT_TRUE(models[1].downloaded());
  EXPECT_EQ(models[1].repo, "google/gemma-2-2b");
  EXPECT_EQ(models[1].bytes, 3u);
  EXPECT_FALSE(models[2].downloaded());
  EXPECT_EQ(models[2].architecture, "LlamaForCausalLM");
  EXPECT_EQ(models[3].architecture, "llama");
  EXPECT_THAT(models[4].problem, HasSubstr("config.json: not JSON"));
}

TEST_F(HubTest, ABrokenModelsJsonNamesTheKey) {
  const auto why_models = [&](const std::string& text) {
    write_bytes(dir_ / "kv/configs/models.json", text);
    return why("llama2");
  };
  EXPECT_THAT(why_models("{}"), HasSubstr("models.json: key models is missing"));
  EXPECT_THAT(why_models(R"({"models": {"x": {"repo": "a/b", "toy": "t"}}})"),
              HasSubstr("models.x: key architecture is missing"));
  EXPECT_THAT(why_models(R"({"models": {"x": {"repo": "ab", "architecture": "A", "toy": "t"}}})"),
              HasSubstr("models.x: repo 'ab' is not org/name"));
  EXPECT_THAT(why_models(R"({"models": {"x": {"repo": "a/b", "architecture": "A", "toy": "t", "gated": 1}}})"),
              HasSubstr("models.x: gated: expected true or false"));
}

TEST_F(HubTest, DataPathsAreFoundFromTheProgram) {
  const ScopedEnv unset("KVDIV_DATA", nullptr);
  const auto root_of = [](const fs::path& exe_dir) { return find_data_paths_from(exe_dir).configs.parent_path(); };
  fs::create_directories(dir_ / "kv/build/release/bin");
  EXPECT_EQ(root_of(dir_ / "kv/build/release/bin"), dir_ / "kv");
  fs::create_directories(dir_ / "prefix/bin");
  EXPECT_THAT(refusal([&] { root_of(dir_ / "prefix/bin"); }),
              AllOf(HasSubstr("no kvdiv data"), HasSubstr("KVDIV_DATA")));
  fs::create_directories(dir_ / "prefix/share");
  fs::copy(dir_ / "kv", dir_ / "prefix/share/kvdiv", fs::copy_options::recursive);
  EXPECT_EQ(root_of(dir_ / "prefix/bin"), dir_ / "prefix/share/kvdiv");
  const ScopedEnv set("KVDIV_DATA", (dir_ / "kv").c_str());
  EXPECT_EQ(root_of(dir_ / "prefix/bin"), dir_ / "kv");
  const ScopedEnv wrong("KVDIV_DATA", "/nowhere");
  EXPECT_THAT(refusal([&] { root_of(dir_ / "prefix/bin"); }), HasSubstr("KVDIV_DATA=/nowhere: expected a directory"));
}

TEST(Hub, RepositoryNames) {
  for (const char* good : {"a/b", "meta-llama/Llama-2-7b-hf", "TinyLlama/TinyLlama-1.1B_x"})
    EXPECT_TRUE(is_repo_name(good));
  for (const char* bad : {"a", "a/", "/b", "a/b/c", "../b", "a/..", "./b", "a b/c", "a/-b", "~/b"})
    EXPECT_FALSE(is_repo_name(bad)) << bad;
}

TEST(Hub, TheShippedAliases) {
  const auto aliases = read_aliases(fs::path(KVDIV_TEST_ROOT) / "configs/models.json");
  EXPECT_EQ(aliases.at("llama2").repo, "meta-llama/Llama-2-7b-hf");
  EXPECT_EQ(aliases.at("mistral").repo, "mistralai/Mistral-7B-v0.3");
  EXPECT_EQ(aliases.at("gemma2").repo, "google/gemma-2-2b");
  const std::map<std::string, std::string> toys{
      {"LlamaForCausalLM", "toy-llama"}, {"MistralForCausalLM", "toy-mistral"}, {"Gemma2ForCausalLM", "toy-gemma2"}};
  for (const auto& [name, alias] : aliases) EXPECT_EQ(alias.toy, toys.at(alias.architecture)) << name;
}

}  // namespace
}  // namespace kvdiv::test
