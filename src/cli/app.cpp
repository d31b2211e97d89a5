// The only user of CLI11: it splits words into flags and values; types, lists and messages come from the field lists.
#include "kvdiv/cli/app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "command.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/version.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/hub.h"

namespace kvdiv {
namespace {

/// "--max_new_tokens=3" → "--max-new-tokens=3": underscores are accepted in the names of flags, not in values.
std::string normalise_flag(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return word;
}

std::string help_of(const FieldInfo& field) {
  std::string out = field.help;
  if (!field.choices.empty()) out += fmt::format(" [{}]", field.choices);
  const Json& d = field.default_value;
  if (d.is_null() || d.is_boolean()) return out;
  std::string text = d.is_string() ? d.get<std::string>() : d.dump();
  if (d.is_array()) {
    text.clear();
    for (const Json& item : d)
      text += (text.empty() ? "" : ",") + (item.is_string() ? item.get<std::string>() : item.dump());
  }
  return fmt::format("{} ({})", out, text);
}

struct Bound {
  CLI::App* app = nullptr;
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, bool> given;
  std::vector<std::string> positionals;
};

void bind(CLI::App& root, const Command& command, Bound& bound) {
  CLI::App* app = root.add_subcommand(command.name, command.summary);
  bound.app = app;
  app->allow_extras();
  for (const FieldInfo& field : command.fields) {
    if (field.kind == FieldKind::boolean)
      app->add_flag("--" + field.key, bound.given[field.key], field.help);
    else
      app->add_option("--" + field.key, bound.texts[field.key], help_of(field))
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->type_name(is_comma_list(field.kind) ? "LIST" : "VALUE");
  }
  if (!command.positional.empty()) app->add_option(command.positional, bound.positionals)->type_name("");
  std::string footer = "Examples:";
  for (const std::string& example : command.examples) footer += "\n  " + example;
  app->footer(footer);
}

[[noreturn]] void refuse_word(const std::string& word, const Command& command) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> own, elsewhere;
  for (const FieldInfo& field : command.fields) own.push_back("--" + field.key);
  for (const Command& other : commands())
    for (const FieldInfo& field : other.fields)
      if ("--" + field.key == name) elsewhere.push_back(other.name);
  if (!elsewhere.empty())
    fail_usage("{}: kvdiv {} does not use this flag (kvdiv {} does)", name, command.name, elsewhere.front());
  if (name.starts_with("-")) fail_usage("{}: unknown flag of kvdiv {}{}", name, command.name, did_you_mean(name, own));
  fail_usage("'{}': kvdiv {} takes no such argument; see kvdiv {} --help", word, command.name, command.name);
}

/// A config file's values: the same names as the flags, in either spelling; a list may be one value or a text with commas.
Json read_config(const std::string& file, const Command& command) {
  Json values = Json::object();
  const Json config = read_json_file(file);
  if (!config.is_object()) fail_usage("--config {}: expected an object", file);
  std::vector<std::string> keys;
  for (const FieldInfo& field : command.fields) keys.push_back(json_key(field.key));
  for (const auto& [name, value] : config.items()) {
    const std::string key = json_key(name);
    const auto at = std::find(keys.begin(), keys.end(), key);
    if (at == keys.end())
      fail_usage("--config {}: key {}: kvdiv {} has no such setting{}", file, name, command.name,
                 did_you_mean(key, keys));
    const FieldInfo& field = command.fields[static_cast<std::size_t>(at - keys.begin())];
    const bool is_list = is_comma_list(field.kind) || field.kind == FieldKind::texts;
    if (is_list && value.is_string())
      values[key] = parse_flag(field, {value.get<std::string>()});
    else
      values[key] = is_list && !value.is_array() && !value.is_null() ? Json::array({value}) : Json(value);
  }
  return values;
}

Invocation make_invocation(const Command& command, Bound& bound, const std::vector<std::string>& arguments) {
  const auto rest = bound.app->remaining();
  if (!rest.empty()) refuse_word(rest.front(), command);
  Invocation invocation;
  invocation.argv = arguments;
  invocation.positionals = bound.positionals;
  if (!command.default_config.empty()) {
    invocation.values = read_config((find_data_paths().configs / command.default_config).string(), command);
    // The sample is one of GSM8K's rows; a file of the user's own is used whole.
    if (!bound.texts["prompts"].empty())
      for (const char* key : {"sample_size", "sample_seed"}) invocation.values.erase(key);
    if (bound.texts.contains("seed") && !bound.texts["seed"].empty()) invocation.values.erase("seeds");
  }
  if (!bound.texts["config"].empty()) invocation.values.update(read_config(bound.texts["config"].back(), command));
  for (const FieldInfo& field : command.fields) {
    const auto& texts = bound.texts[field.key];
    const bool is_given = field.kind == FieldKind::boolean ? bound.given[field.key] : !texts.empty();
    if (is_given) invocation.values[json_key(field.key)] = parse_flag(field, texts);
  }
  return invocation;
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  CLI::App root("Is decoding with a key/value cache equivalent to recomputing the whole prefix?", "kvdiv");
  root.set_version_flag("--version", std::string("kvdiv ") + KVDIV_VERSION);
  root.require_subcommand(1);
  root.allow_extras();
  root.footer("kvdiv <command> --help shows a command's flags and examples.");
  std::vector<Bound> bound(commands().size());
  for (std::size_t i = 0; i < bound.size(); ++i) bind(root, commands()[i], bound[i]);
  std::vector<std::string> words;
  for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) words.push_back(normalise_flag(*it));
  if (words.empty()) {
    fmt::print("{}", root.help());
    return static_cast<int>(ErrorKind::usage);
  }
  if (!words.back().starts_with("-")) {
    std::vector<std::string> names;
    for (const Command& command : commands()) names.push_back(command.name);
    if (std::find(names.begin(), names.end(), words.back()) == names.end())
      fail_usage("'{}' is not a command of kvdiv{} (available: {})", words.back(), did_you_mean(words.back(), names),
                 fmt::join(names, ", "));
  }
  try {
    root.parse(words);
  } catch (const CLI::Success& success) {
    return root.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    fail_usage("{}; see kvdiv --help", error.what());
  }
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (bound[i].app->parsed()) return commands()[i].execute(make_invocation(commands()[i], bound[i], arguments));
  fail_usage("no command; see kvdiv --help");
}

}  // namespace kvdiv
