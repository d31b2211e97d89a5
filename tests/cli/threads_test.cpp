// Which backends' bits do not depend on the number of threads: those that promise it, and a report says which do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "kvdiv/numerics/promises.h"
#include "process.h"

namespace kvdiv::test {
namespace {

std::string records_with(const std::string& threads, const std::string& model, const std::string& backend) {
  const TempDir dir;
  const auto output = dir.path() / "r";
  // Few steps of a short prompt: two threads that wait for each other on a busy machine are slow.
  Json ids = Json::array({1});
  for (int i = 1; i < 40; ++i) ids.push_back(3 + i * 37 % 250);
  const std::string prompts = (dir.path() / "p.jsonl").string();
  write_text_file_atomically(prompts, Json{{"ids", ids}}.dump() + "\n");
  const auto result = kvdiv_run({"run", "--model", model, "--backend", backend, "--dtype", "float16,bfloat16,float32", "--prompts", prompts, "--max-new-tokens", "3", "--ignore-eos",
                                 "--threads", threads, "--quiet", "--output", output.string()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_json_file(output / "report.json")["environment"]["n_threads"], std::stoi(threads));
  const std::string text = read_text_file(output / "records.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * (3 + 1));
  return text;
}

TEST(Threads, ChangeNoBitOfABackendThatPromisesIt) {
  for (const char* backend : {"invariant", "order:sequential", "order:prefill=split-k:4,decode=pairwise"}) {
    EXPECT_EQ(bits_depend_on_threads(backend), "no") << backend;
    for (const char* model : {"toy-llama", "toy-mistral", "toy-gemma2"})
      EXPECT_EQ(records_with("1", model, backend), records_with("2", model, backend)) << backend << ", " << model;
  }
}

/// A vendor's library may add up in another order with more threads, or not: it is looked at, not required.
TEST(Threads, MayChangeBitsOfAVendorsBackend) {
  EXPECT_EQ(bits_depend_on_threads("torch"), "possibly");
  EXPECT_EQ(bits_depend_on_threads("cublaslt:heuristic"), "possibly");
  for (const char* model : {"toy-llama", "toy-mistral", "toy-gemma2"})
    std::cout << "torch, " << model << ", 1 and 2 threads: " << (records_with("1", model, "torch") == records_with("2", model, "torch") ? "the same bits" : "other bits") << "\n";
}

}  // namespace
}  // namespace kvdiv::test
