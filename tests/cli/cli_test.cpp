// The program as a whole: what it prints, what it writes, how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> quick_run(const std::filesystem::path& output, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"run", "--limit", "2", "--max-new-tokens", "12", "--output", output.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<Json> records_of(const std::filesystem::path& dir) {
  std::vector<Json> out;
  for (const std::string& line : split(read_text_file(dir / kRecordsFile), '\n'))
    if (!line.empty()) out.push_back(Json::parse(line));
  return out;
}

TEST(Run, WritesReportAndRecords) {
  const TempDir dir;
  const auto result = kvdiv_run(quick_run(dir.path() / "a", {"--dtype", "float16,float32"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("toy-llama"), HasSubstr("KL(on‖off)"), HasSubstr("same prefix"), HasSubstr("free-running"),
                                HasSubstr("after the flip"), HasSubstr("verdict: "), HasSubstr("controls: all 7 hold")));
  const Json report = read_report(dir.path() / "a");
  EXPECT_EQ(report["complete"], true);
  for (const char* key : {"schema", "complete", "created_utc", "argv", "tool", "environment", "numerics", "model", "data", "experiment",
                          "controls", "conditions", "verdict", "warnings", "timing"})
    EXPECT_TRUE(report.contains(key)) << key;
  for (const char* key : {"name", "path", "architecture", "traits", "sizes", "n_params", "weights_sha256", "cast"})
    EXPECT_TRUE(report["model"].contains(key)) << key;
  EXPECT_EQ(report["model"]["n_params"], 260032);
  EXPECT_EQ(report["model"]["cast"]["overflow"], 0);
  EXPECT_TRUE(report["model"]["cast"]["by_dtype"].contains("float32"));
  EXPECT_EQ(report["data"]["indices"], Json({1309, 228})) << "Python's random.Random(42).sample(range(1319), 700)";
  EXPECT_EQ(report["data"]["n_prompts_with_bos"], 2);
  EXPECT_EQ(report["conditions"].size(), 2u);
  std::size_t n_pairs = 0, n_steps = 0;
  for (const Json& r : records_of(dir.path() / "a")) {
    EXPECT_EQ(r.begin().key(), "type");
    n_pairs += r["type"] == "pair";
    n_steps += r["type"] == "step";
  }
  EXPECT_EQ(n_pairs, 4u);
  EXPECT_EQ(n_steps, 4u * 12u);
}

TEST(Run, RecordsAreTheSameBytesEveryTime) {
  const TempDir dir;
  ASSERT_EQ(kvdiv_run(quick_run(dir.path() / "a", {"--prompts", short_prompts(), "--strategy", "greedy,top-k,top-p", "--seeds", "2"})).code, 0);
  ASSERT_EQ(kvdiv_run(quick_run(dir.path() / "b", {"--prompts", short_prompts(), "--strategy", "greedy,top-k,top-p", "--seeds", "2", "--quiet"}), {"TZ=Asia/Tokyo", "LC_ALL=de_DE.UTF-8"}).code, 0);
  const std::string a = read_text_file(dir.path() / "a" / kRecordsFile);
  EXPECT_EQ(a, read_text_file(dir.path() / "b" / kRecordsFile));
  EXPECT_GT(a.size(), 10000u);
}

TEST(Run, JsonGoesToStdoutAlone) {
  const TempDir dir;
  const auto result = kvdiv_run(quick_run(dir.path() / "a", {"--prompts", short_prompts(), "--json"}));
  ASSERT_EQ(result.code, 0);
  EXPECT_EQ(Json::parse(result.out), read_report(dir.path() / "a"));
  const auto quiet = kvdiv_run(quick_run(dir.path() / "a", {"--prompts", short_prompts(), "--quiet", "--overwrite"}));
  EXPECT_EQ(quiet.err, "");
  const auto again = kvdiv_run({"report", (dir.path() / "a").string()});
  EXPECT_EQ(again.out, quiet.out) << "a report renders the same without decoding";
}

TEST(Run, AResultIsNotOverwrittenByAccident) {
  const TempDir dir;
  ASSERT_EQ(kvdiv_run(quick_run(dir.path() / "a", {"--prompts", short_prompts()})).code, 0);
  const std::string before = read_text_file(dir.path() / "a" / kRecordsFile);
  const auto refused = kvdiv_run(quick_run(dir.path() / "a"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
  EXPECT_EQ(read_text_file(dir.path() / "a" / kRecordsFile), before);
  EXPECT_EQ(kvdiv_run(quick_run(dir.path() / "a", {"--prompts", short_prompts(), "--overwrite"})).code, 0);
  write_text_file_atomically(dir.path() / "file", "x");
  EXPECT_EQ(kvdiv_run(quick_run(dir.path() / "file")).code, 3);
}

TEST(Run, AnInterruptLeavesWholeRecords) {
  const TempDir dir;
  Process process({"run", "--limit", "300", "--max-new-tokens", "40", "--output", (dir.path() / "a").string()});
  for (int i = 0; i < 600 && (!std::filesystem::exists(dir.path() / "a" / kRecordsFile) || std::filesystem::file_size(dir.path() / "a" / kRecordsFile) == 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  process.send(SIGINT);
  const auto result = process.wait();
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_EQ(read_report(dir.path() / "a")["complete"], false);
  const auto records = records_of(dir.path() / "a");
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back()["type"], "pair") << "the pair in hand was finished";
  EXPECT_THAT(result.out, HasSubstr("INCOMPLETE"));
}

struct Refusal {
  std::vector<std::string> arguments;
  int code;
  std::string says;
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithItsReason) {
  const auto& [arguments, code, says] = GetParam();
  const auto result = kvdiv_run(arguments);
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr(says), HasSubstr("kvdiv: ")));
  EXPECT_EQ(result.out, "");
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 2) << "one or two lines: " << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(Refusal{{"run", "--max-new-token", "3"}, 2, "did you mean '--max-new-tokens'"},
                    Refusal{{"runn"}, 2, "did you mean 'run'"}, Refusal{{"models", "--limit", "3"}, 2, "does not use this flag"},
                    Refusal{{"run", "stray"}, 2, "stray"}, Refusal{{"run", "--dtype", "float8"}, 2, "float16"},
                    Refusal{{"run", "--dtype", "float16,float16"}, 2, "twice"}, Refusal{{"run", "--dtype", ""}, 2, "--dtype"},
                    Refusal{{"run", "--limit", "3", "--limit", "4"}, 2, "--limit"}, Refusal{{"run", "--limit", "x"}, 2, "integer"},
                    Refusal{{"run", "--limit", "99999999999999999999"}, 2, "range"}, Refusal{{"run", "--temperature", "-1"}, 2, "--temperature"},
                    Refusal{{"run", "--temperature", "nan"}, 2, "--temperature"}, Refusal{{"run", "--top-p", "1.5"}, 2, "--top-p"},
                    Refusal{{"run", "--top_k", "0"}, 2, "--top-k"}, Refusal{{"run", "--seed", "1,-2"}, 2, "--seed"},
                    Refusal{{"run", "--seed", "1", "--seeds", "2"}, 2, "--seeds"}, Refusal{{"run", "--backend", "nope"}, 2, "torch"},
                    Refusal{{"run", "--device", "cuda"}, 2, "--device cuda: "},
                    Refusal{{"run", "--device", "cpu", "--backend", "cublaslt:heuristic"}, 2, "use --device cuda"},
                    Refusal{{"run", "--device", "cpu", "--cuda-graph"}, 2, "--cuda-graph"},
                    Refusal{{"run", "--device", "cpu", "--allow-tf32"}, 2, "--allow-tf32"},
                    Refusal{{"run", "--device", "cpu", "--allow-reduced-reduction"}, 2, "--allow-reduced-reduction"},
                    Refusal{{"mitigate", "--device", "cpu", "--remedy", "cublaslt-no-split-k"}, 2, "--device cuda"}, Refusal{{"run", "--threads", "0"}, 2, "--threads"},
                    Refusal{{"run", "--sample-size", "2000"}, 2, "--sample-size"}, Refusal{{"run", "--limit", "0"}, 3, "no prompt"},
                    Refusal{{"run", "--model", "llama2"}, 3, "hf download meta-llama/Llama-2-7b-hf"},
                    Refusal{{"run", "--model", "nope"}, 3, "toy-llama"}, Refusal{{"run", "--model", "/nonexistent/dir"}, 3, "/nonexistent/dir"},
                    Refusal{{"run", "--limit", "1", "--max-new-tokens", "5000"}, 2, "gsm8k-test-1309"},
                    Refusal{{"run", "--prompts", "/nonexistent.jsonl"}, 3, "/nonexistent.jsonl"},
                    Refusal{{"run", "--config", "/nonexistent.json"}, 3, "/nonexistent.json"}, Refusal{{"report", "/nonexistent"}, 3, "/nonexistent"},
                    Refusal{{"report"}, 2, "result directory"}));

TEST(Config, FileAndFlagsAndTheirPrecedence) {
  const TempDir dir;
  const auto file = (dir.path() / "c.json").string();
  write_text_file_atomically(file, R"({"max_new_tokens": 7, "dtype": "float32,bfloat16", "strategy": ["top-k"], "top-k": 3, "backend": "torch"})");
  const auto printed = kvdiv_run({"run", "--config", file, "--max_new_tokens", "9", "--print-config"});
  ASSERT_EQ(printed.code, 0) << printed.err;
  const Json config = Json::parse(printed.out);
  EXPECT_EQ(config["max_new_tokens"], 9);
  EXPECT_EQ(config["top_k"], 3);
  EXPECT_EQ(config["dtype"], Json({"float32", "bfloat16"}));
  EXPECT_EQ(config["sample_size"], 700);
  write_text_file_atomically(file, printed.out);
  EXPECT_EQ(kvdiv_run({"run", "--config", file, "--print-config"}).out, printed.out) << "what is printed can be fed back";
  write_text_file_atomically(file, R"({"max_new_tokes": 7})");
  const auto typo = kvdiv_run({"run", "--config", file});
  EXPECT_EQ(typo.code, 2);
  EXPECT_THAT(typo.err, HasSubstr("did you mean 'max_new_tokens'"));
  write_text_file_atomically(file, R"({"max_new_tokens": "many"})");
  EXPECT_EQ(kvdiv_run({"run", "--config", file}).code, 2);
}

/// A model whose activations overflow: exit 4, the layer named, and the report written all the same.
TEST(Run, AnInvalidMeasurementIsNotASuccess) {
  const TempDir dir;
  auto tensors = raw_tensors(golden_dir("tiny-llama"));
  for (RawTensor& t : tensors)
    if (t.name == "model.layers.1.mlp.down_proj.weight")
      for (std::size_t i = 0; i < t.bytes.size(); i += 4) {
        float v = 0;
        std::memcpy(&v, t.bytes.data() + i, 4);
        v *= 20000.0f;
        std::memcpy(t.bytes.data() + i, &v, 4);
      }
  std::filesystem::copy_file(golden_dir("tiny-llama") / "config.json", dir.path() / "config.json");
  write_safetensors(dir.path() / "model.safetensors", tensors);
  write_text_file_atomically(dir.path() / "p.jsonl", "{\"ids\": [3, 17, 42]}\n");
  const auto result = kvdiv_run({"run", "--model", dir.path().string(), "--prompts", (dir.path() / "p.jsonl").string(), "--output", (dir.path() / "r").string(), "--max-new-tokens", "4"});
  EXPECT_EQ(result.code, 4) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("verdict: invalid"), HasSubstr("layer 2 of 3")));
  EXPECT_EQ(read_report(dir.path() / "r")["verdict"]["kind"], "invalid");
}

/// A checkpoint without tokenizer.model runs on ids, and says so; texts and accuracy are null.
TEST(Run, WithoutATokenizer) {
  const TempDir dir;
  write_text_file_atomically(dir.path() / "p.jsonl", "{\"ids\": [3, 17, 42], \"id\": \"mine\"}\n");
  const auto result = kvdiv_run({"run", "--model", golden_dir("tiny-mistral").string(), "--prompts", (dir.path() / "p.jsonl").string(), "--output", (dir.path() / "r").string(), "--max-new-tokens", "4"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no_tokenizer"));
  const Json pair = records_of(dir.path() / "r").back();
  EXPECT_EQ(pair["prompt_id"], "mine");
  EXPECT_TRUE(pair["text_on"].is_null() && pair["answer_on"].is_null());
  EXPECT_THAT(kvdiv_run({"run", "--model", golden_dir("tiny-mistral").string()}).err, HasSubstr("ids"));
}

/// Growth with the number of prompts stays under 8 MiB; the prompts are of one length, because activations are not.
TEST(Run, MemoryDoesNotGrowWithThePrompts) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory in its quarantine (256 MB), so resident memory says nothing here";
#endif
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    Json ids = Json::array({1});
    for (int k = 0; k < 119; ++k) ids.push_back(3 + (i + k * 7) % 500);
    lines += Json{{"ids", ids}}.dump() + "\n";
  }
  write_text_file_atomically(dir.path() / "p.jsonl", lines);
  const auto peak = [&](const std::string& limit) {
    const auto result = kvdiv_run({"run", "--prompts", (dir.path() / "p.jsonl").string(), "--limit", limit, "--max-new-tokens", "12", "--ignore-eos", "--json", "--quiet", "--output", (dir.path() / limit).string()});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out)["timing"]["peak_rss_bytes"].get<double>();
  };
  const double four = peak("4"), forty = peak("40");
  EXPECT_GT(four, 50.0 * 1024 * 1024) << "a process with libtorch";
  EXPECT_LT(forty - four, 8.0 * 1024 * 1024);
}

TEST(Help, EveryCommandShowsTwoExamples) {
  for (const Command& command : commands()) {
    EXPECT_GE(command.examples.size(), 2u) << command.name;
    const auto help = kvdiv_run({command.name, "--help"});
    EXPECT_EQ(help.code, 0);
    for (const std::string& example : command.examples) EXPECT_THAT(help.out, HasSubstr(example));
    for (const FieldInfo& field : command.fields) EXPECT_THAT(help.out, HasSubstr("--" + field.key));
  }
  EXPECT_EQ(kvdiv_run({}).code, 2);
  EXPECT_THAT(kvdiv_run({"--version"}).out, HasSubstr("kvdiv 0."));
}

TEST(Models, ListsToysAndAliases) {
  const auto text = kvdiv_run({"models"}, {"HF_HUB_CACHE=/nonexistent"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("toy-llama"), HasSubstr("toy-mistral"), HasSubstr("toy-gemma2"), HasSubstr("mistralai/Mistral-7B-v0.3")));
  const Json list = Json::parse(kvdiv_run({"models", "--json"}).out);
  EXPECT_EQ(list[0]["kind"], "toy");
  EXPECT_EQ(list[0]["fits"], true);
}

TEST(Env, ShowsWhatReportsRecord) {
  const Json env = Json::parse(kvdiv_run({"env", "--json"}).out);
  EXPECT_EQ(env["tool"]["libtorch"], "2.11.0");
  EXPECT_EQ(env["numerics"]["mkl_cbwr"], "AVX2,STRICT");
  EXPECT_EQ(env["environment"]["device"], "cpu");
}

}  // namespace
}  // namespace kvdiv::test
