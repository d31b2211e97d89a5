// Every file of tests/corpus/fuzz through its target: seeds, and the inputs that once broke something. Beside what a target
// checks itself, no input may hold on to the process, nor make it allocate out of proportion.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/counted_memory.h"
#include "fuzz/targets.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = KVDIV_TEST_ROOT "/tests/corpus/fuzz";

// The densest JSON is a list of numbers or empty objects (2 or 3 bytes of text are a value of 16), an object of short keys
// (6 bytes are a value, its key, and the key once more to find it given twice), and prompts of one token (12 bytes are a row
// and a prompt); vectors grow by doubling. The worst of them takes 43 bytes for one, measured. The constant part is what a
// number in the file may ask for (a window for each of 10,000 layers), and the tables of names.
constexpr std::size_t kBytesForOne = 64, kBytesForAny = 1 << 20;
constexpr int kSeconds = 20;  // of this process's own CPU time: ten times what the slowest takes, and enough under sanitizers

std::array<char, 256> in_hand{};

/// Ends the process with the input's name if it is not through in time.
class Watchdog {
 public:
  explicit Watchdog(std::string_view name) {
    const std::string text = "no end after 20 s of CPU time: " + std::string(name.substr(0, 200)) + "\n";
    in_hand.fill('\0');
    std::copy(text.begin(), text.end(), in_hand.begin());
    ::signal(SIGPROF, [](int) {
      [[maybe_unused]] const auto n = ::write(STDERR_FILENO, in_hand.data(), std::string_view(in_hand.data()).size());
      ::_exit(1);
    });
    set(kSeconds);
  }
  ~Watchdog() { set(0); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  static void set(int seconds) {
    const itimerval timer{{0, 0}, {seconds, 0}};
    ::setitimer(ITIMER_PROF, &timer, nullptr);
  }
};

void replay(const FuzzTarget& target, std::string_view text, const std::string& name) {
  // A buffer of exactly that size, so that a sanitizer sees the first byte that is read behind it.
  const std::vector<std::uint8_t> input(text.begin(), text.end());
  const Watchdog watchdog(name);
  const PeakMemory memory;
  EXPECT_NO_THROW(target.run(input)) << name;
  EXPECT_LE(memory.bytes(), kBytesForOne * input.size() + kBytesForAny) << name << ", " << input.size() << " bytes";
}

class Replay : public testing::TestWithParam<FuzzTarget> {};

TEST_P(Replay, EveryFileOfTheCorpus) {
  int n_files = 0;
  for (const auto& entry : fs::directory_iterator(kCorpus / GetParam().name)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    replay(GetParam(), text, entry.path().lexically_relative(KVDIV_TEST_ROOT).string());
    ++n_files;
  }
  EXPECT_GE(n_files, 5) << "no corpus";
}

std::string repeated(std::string_view head, std::string_view item, std::string_view tail, std::size_t n_bytes) {
  std::string out(head);
  while (out.size() + tail.size() < n_bytes) out += item;
  return out.append(tail);
}

/// `head`, then n items that hold their own number in the place of '#', then `tail`.
std::string numbered(std::string_view head, std::string_view item, std::string_view tail, std::size_t n_bytes) {
  std::string out(head);
  for (std::size_t i = 0; out.size() + tail.size() < n_bytes; ++i)
    for (const char c : item) c == '#' ? out += std::to_string(i) : out += c;
  return out.append(tail);
}

/// What a quadratic loop or a fat row would show: the same small thing, a million bytes of it. (Not yet valid texts get
/// the length of a safetensors header in front where the target wants one.)
TEST_P(Replay, AMillionBytesOfTheSameThing) {
  constexpr std::size_t kBytes = 1'000'000;
  const std::string config = R"({"model_type":"llama","hidden_size":48,"intermediate_size":64,"num_hidden_layers":1,)"
                             R"("num_attention_heads":4,"vocab_size":100000000)";
  const std::vector<std::pair<const char*, std::string>> inputs{
      {"brackets", std::string(kBytes, '[')},
      {"zeros", repeated("[0", ",0", "]", kBytes)},
      {"empty objects", repeated("[{}", ",{}", "]", kBytes)},
      {"short keys", numbered("{\"z\":0", ",\"#\":0", "}", kBytes)},
      {"one long key", "{\"" + std::string(kBytes, 'x') + "\":0}"},
      {"escapes", repeated("[\"", "\\u0001", "\"]", kBytes)},
      {"blank lines", std::string(kBytes, '\n')},
      {"zero bytes", std::string(kBytes, '\0')},
      {"unknown keys of a config", numbered(config, ",\"#\":1", "}", kBytes)},
      {"end tokens of a config", numbered(config + ",\"eos_token_id\":[0", ",#", "]}", 4 * kBytes)},
      {"layer types", repeated(config + ",\"layer_types\":[0", ",\"full_attention\"", "]}", kBytes)},
      {"rope parameters", numbered(config + ",\"rope_parameters\":{\"a\":null", ",\"#\":null", "}}", kBytes)},
      {"weight map", numbered("{\"weight_map\":{\"z\":\"a.safetensors\"", ",\"#\":\".safetensors\"", "}}", kBytes)},
      {"prompts", repeated("", "{\"ids\":[1]}\n", "", kBytes)},
      {"ids", repeated("{\"ids\":[1", ",1", "]}\n", kBytes)},
      {"unknown keys of a prompt", numbered("{\"z\":0", ",\"#\":0", "}\n", kBytes)},
      {"records", repeated("", "{\"type\":\"\"}\n", "", kBytes)},
      {"keys of a record", numbered("{\"type\":\"step\"", ",\"#\":0", "}\n", kBytes)},
      {"tokens of a record", repeated("{\"type\":\"pair\",\"tokens_on\":[0", ",0", "]}\n", kBytes)},
      {"a contract's key", "{\"schema\":\"kvdiv/contract/1\",\"" + std::string(kBytes, 'l') + "\":0}"},
      {"controls", repeated("{\"schema\":\"kvdiv/contract/1\",\"title\":\"t\",\"controls\":[\"on_on_bit_equal\"",
                            ",\"on_on_bit_equal\"", "],\"limits\":[]}", kBytes)},
      {"limits", repeated("{\"schema\":\"kvdiv/contract/1\",\"title\":\"t\",\"limits\":[0", ",0", "]}", kBytes)},
      {"empty tensors", numbered("{\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                                 ",\"#\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "}", kBytes)},
      {"dimensions", repeated("{\"z\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1", ",1", "]}}", kBytes)},
      {"pieces", repeated("", std::string_view("\x0a\x00", 2), "", kBytes)},
  };
  for (const auto& [name, text] : inputs) {
    std::string whole = text;
    if (GetParam().name == "safetensors") {
      whole.insert(0, 8, '\0');
      for (std::size_t i = 0; i < 8; ++i) whole[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
    }
    if (GetParam().name == "checkpoint") whole = config + "}" + '\0' + text;
    replay(GetParam(), whole, std::string(GetParam().name) + ": " + name);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

/// The counter sees what it must see: otherwise every bound above holds.
TEST(PeakMemory, CountsWhatIsHeldAtOneTime) {
  const PeakMemory memory;
  for (int i = 0; i < 3; ++i) {
    const std::vector<char> one(100'000);
    EXPECT_GE(memory.bytes(), one.size());
  }
  EXPECT_LT(memory.bytes(), 200'000u);
}

}  // namespace
}  // namespace kvdiv::test
