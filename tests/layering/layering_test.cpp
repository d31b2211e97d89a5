// Holds every include line of include/ and src/ against the layering of docs/architecture.md, and every text file of the
// repository against a short list of words that must not be in it. The rules are functions of (path, include), tested
// first with violations, so that a green run means something.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Set = std::set<std::string>;

// ---- the rules -----------------------------------------------------------------------------------------------------

/// Which folders a folder may include besides itself. "cli" stands for src/cli, src/main.cpp and src/tools.
const std::map<std::string, Set>& folder_table() {
  static const std::map<std::string, Set> table{
      {"base", {}},
      {"io", {"base"}},
      {"numerics", {"base"}},
      {"stats", {"base"}},
      {"report", {"base", "io"}},
      {"cuda", {"base", "numerics", "stats"}},  // the module, which nobody includes
      {"model", {"base", "numerics"}},  // and model/weights* io
      {"decode", {"base", "model", "numerics"}},
      {"experiments", {"base", "decode", "model", "numerics", "stats"}},
      {"cli", {"base", "decode", "experiments", "io", "model", "numerics", "report", "stats"}},
  };
  return table;
}

const Set kMayUseTorch{"cuda", "numerics", "model", "decode", "experiments", "tools"};
const Set kExperimentsFrontDoor{"context"};
constexpr std::size_t kLinesToAimAt = 300;
constexpr std::size_t kMaxLines = 400;

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

struct Place {
  std::string folder;  ///< base, io, …; main.cpp: "main"; src/tools: "tools"
  std::string stem;    ///< file name without its ending
};

/// Of "src/io/files.cpp", "include/kvdiv/io/files.h" or "src/main.cpp".
Place place_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  const std::string parent = path.parent_path().filename().string();
  return {parent == "src" || parent == "kvdiv" ? stem : parent, stem};
}

/// "falsify_dot.cpp" and "falsify.h" belong to one experiment.
bool same_experiment(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + "_") || b.starts_with(a + "_");
}

std::optional<std::string> layering_violation(const Place& from, const Place& to) {
  const bool at_the_top = from.folder == "cli" || from.folder == "main" || from.folder == "tools";
  const std::string row = at_the_top ? "cli" : from.folder;
  if (!folder_table().contains(row)) return fmt::format("folder '{}' is not in the table", from.folder);
  if (!folder_table().contains(to.folder)) return fmt::format("there is no folder '{}'", to.folder);

  const bool weights_reads_files = from.folder == "model" && from.stem.starts_with("weights") && to.folder == "io";
  if (row != to.folder && !folder_table().at(row).contains(to.folder) && !weights_reads_files)
    return fmt::format("{} must not include {}", from.folder, to.folder);

  if (to.folder != "experiments" || kExperimentsFrontDoor.contains(to.stem) || to.stem.starts_with("common_"))
    return std::nullopt;
  if (from.folder == "cli" && from.stem == "commands") return std::nullopt;
  if (at_the_top) return std::string("only the table of commands knows the experiments");
  if (from.stem == "paper") return std::nullopt;  // the five in one: it knows their front doors
  if (!same_experiment(from.stem, to.stem)) return std::string("experiments do not include each other");
  return std::nullopt;
}

/// Why `path` (relative to the root, with '/') must not include `include` (as written between the quotes or brackets).
std::optional<std::string> violation(const std::string& path, const std::string& include, bool quoted) {
  const Place from = place_of(path);
  if (include == "torch/torch.h") return std::string("torch/torch.h takes 12 s to compile: include narrowly");
  if (starts_with_any(include, {"ATen/", "torch/", "c10/", "caffe2/"}) && !kMayUseTorch.contains(from.folder))
    return fmt::format("{} must not know libtorch", from.folder);
  if (include.starts_with("CLI/") && !path.starts_with("src/cli/") && path != "src/main.cpp")
    return std::string("CLI11 belongs to src/cli and src/main.cpp");
  if (include.starts_with("kvdiv/")) {
    if (!quoted) return std::string("own headers are included with quotes");
    return layering_violation(from, place_of(include));
  }
  if (quoted && include.find('/') != std::string::npos)
    return std::string("with quotes: \"kvdiv/folder/file.h\" or a private header of the same folder");
  return std::nullopt;
}

/// Paths of machines and hosts of package registries; put together here so that this file does not hold them.
std::vector<std::string> forbidden_words() {
  const auto join = [](std::initializer_list<std::string_view> parts) {
    std::string out;
    for (const auto part : parts) out += part;
    return out;
  };
  return {join({"/wo", "rk/"}),       join({"/ro", "ot/"}),         join({"/ho", "me/"}),    join({"py", "pi.org"}),
          join({"python", "hosted"}), join({"deb.", "debian.org"}), join({"npm", "js.org"}), join({"anaconda", ".org"}),
          join({"crates", ".io"}),    join({"proxy.", "golang"})};
}

std::optional<std::string> forbidden_word_in(std::string_view text) {
  for (const auto& word : forbidden_words())
    if (text.find(word) != std::string_view::npos) return word;
  return std::nullopt;
}

// ---- the files -----------------------------------------------------------------------------------------------------

const fs::path kRoot = KVDIV_TEST_ROOT;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string relative_name(const fs::path& path) { return path.lexically_relative(kRoot).generic_string(); }

std::vector<fs::path> sources() {
  std::vector<fs::path> out;
  for (const char* folder : {"include/kvdiv", "src"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (Set{".h", ".cpp", ".cu", ".cuh"}.contains(entry.path().extension().string())) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

/// What git would track, near enough to need no git: not build trees, result folders, caches and the repository itself.
std::vector<fs::path> repository_files() {
  static const Set left_out{".git", "build", ".cache", "__pycache__", "compile_commands.json"};
  std::vector<fs::path> out;
  for (fs::recursive_directory_iterator it(kRoot), end; it != end; ++it) {
    const bool in_results = it->path().parent_path() == kRoot / "results" && it->path().extension() != ".json";
    if (in_results || left_out.contains(it->path().filename().string())) {
      if (it->is_directory()) it.disable_recursion_pending();
    } else if (it->is_regular_file() && !it->is_symlink()) {
      out.push_back(it->path());
    }
  }
  return out;
}

struct Include {
  std::string name;
  bool quoted;
};

/// The include of a line, if it is one: `#include "x"`, `  #  include <x>  // why`.
std::optional<Include> include_of(std::string_view line) {
  const auto skip = [&](std::string_view expected) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool there = line.starts_with(expected);
    if (there) line.remove_prefix(expected.size());
    return there;
  };
  if (!skip("#") || !skip("include") || !skip("") || line.empty()) return std::nullopt;
  const bool quoted = line.front() == '"';
  const auto end = line.find(quoted ? '"' : '>', 1);
  if ((!quoted && line.front() != '<') || end == std::string_view::npos) return std::nullopt;
  return Include{std::string(line.substr(1, end - 1)), quoted};
}

std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (auto include = include_of(line)) out.push_back(std::move(*include));
  return out;
}

std::string table_text() {
  std::string out = "\nmay include (docs/architecture.md):\n";
  for (const auto& [folder, allowed] : folder_table()) {
    out += fmt::format("  {:<12} ->", folder);
    for (const auto& name : allowed) out += " " + name;
    out += "\n";
  }
  return out + "  model/weights* also io; cli, main and tools of experiments only context.h, cli/commands.cpp any\n";
}

// ---- the rules see what they must see ------------------------------------------------------------------------------

struct Sample {
  const char* path;
  std::string_view include;  ///< a system header in <>
  const char* problem;       ///< part of the message; nullptr: allowed

  friend std::ostream& operator<<(std::ostream& out, const Sample& s) {
    return out << s.path << " includes " << s.include;
  }
};

class Rules : public testing::TestWithParam<Sample> {};

TEST_P(Rules, Judge) {
  const auto& [path, include, problem] = GetParam();
  const bool quoted = !include.starts_with('<');
  const std::string name(quoted ? include : include.substr(1, include.size() - 2));
  EXPECT_THAT(violation(path, name, quoted).value_or("allowed"), testing::HasSubstr(problem ? problem : "allowed"));
}

INSTANTIATE_TEST_SUITE_P(
    Forbidden, Rules,
    testing::Values(Sample{"src/base/text.cpp", "kvdiv/io/files.h", "base must not include io"},
                    Sample{"include/kvdiv/base/json.h", "kvdiv/report/records.h", "base must not include report"},
                    Sample{"src/io/files.cpp", "kvdiv/model/config.h", "io must not include model"},
                    Sample{"src/stats/metrics.cpp", "kvdiv/io/files.h", "stats must not include io"},
                    Sample{"src/report/report.cpp", "kvdiv/stats/summary.h", "report must not include stats"},
                    Sample{"src/numerics/backends.cpp", "kvdiv/model/decoder.h", "numerics must not include model"},
                    Sample{"src/model/decoder.cpp", "kvdiv/io/safetensors.h", "model must not include io"},
                    Sample{"src/model/decoder.cpp", "kvdiv/decode/stepper.h", "model must not include decode"},
                    Sample{"src/decode/pair.cpp", "kvdiv/stats/metrics.h", "decode must not include stats"},
                    Sample{"src/decode/pair.cpp", "kvdiv/io/files.h", "decode must not include io"},
                    Sample{"src/experiments/run.cpp", "kvdiv/io/files.h", "experiments must not include io"},
                    Sample{"src/experiments/run.cpp", "kvdiv/report/report.h", "experiments must not include report"},
                    Sample{"src/experiments/run.cpp", "kvdiv/cli/flags.h", "experiments must not include cli"},
                    Sample{"src/experiments/run.cpp", "kvdiv/experiments/drift.h", "each other"},
                    Sample{"include/kvdiv/experiments/context.h", "kvdiv/cli/flags.h",
                           "experiments must not include cli"},
                    Sample{"src/cli/measure.cpp", "kvdiv/experiments/run.h", "only the table of commands"},
                    Sample{"src/main.cpp", "kvdiv/experiments/run.h", "only the table of commands"},
                    Sample{"src/tools/dump_logits.cpp", "kvdiv/experiments/run.h", "only the table of commands"},
                    Sample{"src/decode/pair.cpp", "kvdiv/cuda/kernels.h", "decode must not include cuda"},
                    Sample{"src/cuda/module.cpp", "kvdiv/model/decoder.h", "cuda must not include model"},
                    Sample{"src/new_folder/a.cpp", "kvdiv/base/text.h", "not in the table"},
                    Sample{"src/io/a.cpp", "kvdiv/new_folder/a.h", "no folder 'new_folder'"},
                    Sample{"src/experiments/run.cpp", "<CLI/CLI.hpp>", "CLI11"},
                    Sample{"include/kvdiv/cli/flags.h", "<CLI/CLI.hpp>", "CLI11"},
                    Sample{"src/model/decoder.cpp", "<torch/torch.h>", "narrowly"},
                    Sample{"src/main.cpp", "<torch/torch.h>", "narrowly"},
                    Sample{"src/io/safetensors.cpp", "<ATen/core/Tensor.h>", "io must not know libtorch"},
                    Sample{"src/stats/metrics.cpp", "<c10/util/Half.h>", "stats must not know libtorch"},
                    Sample{"include/kvdiv/cli/flags.h", "<ATen/ATen.h>", "cli must not know libtorch"},
                    Sample{"src/main.cpp", "<torch/script.h>", "main must not know libtorch"},
                    Sample{"src/report/report.cpp", "<ATen/Parallel.h>", "report must not know libtorch"},
                    Sample{"src/io/a.cpp", "../model/modules.h", "private header of the same folder"}));

INSTANTIATE_TEST_SUITE_P(
    Allowed, Rules,
    testing::Values(Sample{"src/io/files.cpp", "kvdiv/io/files.h", nullptr},
                    Sample{"src/io/files.cpp", "kvdiv/base/error.h", nullptr},
                    Sample{"src/model/weights.cpp", "kvdiv/io/safetensors.h", nullptr},
                    Sample{"include/kvdiv/model/weights.h", "kvdiv/io/checkpoint.h", nullptr},
                    Sample{"src/model/modules.cpp", "modules.h", nullptr},
                    Sample{"src/decode/pair.cpp", "<ATen/core/Tensor.h>", nullptr},
                    Sample{"src/experiments/run.cpp", "kvdiv/stats/metrics.h", nullptr},
                    Sample{"src/experiments/run.cpp", "kvdiv/experiments/run.h", nullptr},
                    Sample{"src/experiments/falsify_dot.cpp", "kvdiv/experiments/falsify.h", nullptr},
                    Sample{"src/experiments/run.cpp", "kvdiv/experiments/context.h", nullptr},
                    Sample{"src/cli/commands.cpp", "kvdiv/experiments/run.h", nullptr},
                    Sample{"src/main.cpp", "kvdiv/experiments/context.h", nullptr},
                    Sample{"src/main.cpp", "kvdiv/cli/app.h", nullptr},
                    Sample{"src/main.cpp", "<CLI/CLI.hpp>", nullptr},
                    Sample{"src/cli/flags.cpp", "<CLI/CLI.hpp>", nullptr},
                    Sample{"src/tools/dump_logits.cpp", "<ATen/core/Tensor.h>", nullptr}));

TEST(IncludeLines, AreFoundHoweverTheyAreWritten) {
  const auto found =
      includes_of("#pragma once\n#include <a/b.h>\n  #  include \"c.h\"  // why\n// #include <not/this.h>\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "a/b.h");
  EXPECT_FALSE(found[0].quoted);
  EXPECT_EQ(found[1].name, "c.h");
  EXPECT_TRUE(found[1].quoted);
}

TEST(ForbiddenWords, AreSeen) {
  for (const auto& word : forbidden_words()) EXPECT_EQ(forbidden_word_in("x " + word + " y"), word);
  EXPECT_EQ(forbidden_word_in("the work/ folder, ~/.cache, a.org"), std::nullopt);
}

// ---- the repository keeps them -------------------------------------------------------------------------------------

TEST(Repository, EveryIncludeKeepsToTheLayering) {
  std::string problems;
  std::size_t n_includes = 0;
  for (const auto& path : sources()) {
    for (const auto& include : includes_of(read_file(path))) {
      ++n_includes;
      if (const auto why = violation(relative_name(path), include.name, include.quoted))
        problems += fmt::format("  {} includes {}: {}\n", relative_name(path), include.name, *why);
    }
  }
  EXPECT_GT(n_includes, 20u) << "nothing was read";
  EXPECT_TRUE(problems.empty()) << "\n" << problems << table_text();
}

TEST(Repository, EveryHeaderSaysPragmaOnce) {
  for (const auto& path : sources()) {
    if (path.extension() != ".h") continue;
    if (path.stem().string().ends_with("-inl")) continue;  // Highway includes these once for each target, on purpose
    EXPECT_THAT(read_file(path), testing::StartsWith("#pragma once\n")) << relative_name(path);
  }
}

TEST(Repository, FilesAreShort) {
  for (const auto& path : sources()) {
    const std::string text = read_file(path);
    const auto n_lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_LE(n_lines, kMaxLines) << relative_name(path) << " wants to be two files";
    if (n_lines > kLinesToAimAt)
      fmt::print("warning: {} has {} lines, aim at {}\n", relative_name(path), n_lines, kLinesToAimAt);
  }
}

TEST(Repository, TextFilesNameNoMachineAndNoRegistry) {
  const auto files = repository_files();
  EXPECT_GT(files.size(), 20u) << "nothing was read";
  for (const auto& path : files) {
    const std::string text = read_file(path);
    if (text.find('\0') != std::string::npos) continue;
    const auto word = forbidden_word_in(text);
    EXPECT_FALSE(word.has_value()) << relative_name(path) << " holds " << *word;
  }
}

}  // namespace
