// The only user of CLI11: it splits words into flags and values; types, lists and messages come from the field lists.
#include "kvdiv/cli/app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <system_error>

#include "command.h"
#include "flag_rules.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/version.h"
#include "kvdiv/io/files.h"
#include "kvdiv/io/hub.h"
#include "kvdiv/report/malformed.h"
#include "standard_streams.h"

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
  std::map<std::string, CLI::Option*> switches;  ///< of boolean flags
  std::vector<std::string> positionals;
};

void bind(CLI::App& root, const Command& command, Bound& bound) {
  CLI::App* app = root.add_subcommand(command.name, command.summary);
  bound.app = app;
  app->allow_extras();
  for (const FieldInfo& field : command.fields) {
    if (field.kind == FieldKind::boolean)
      bound.switches[field.key] = app->add_flag("--" + field.key, field.help);
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

/// ", did you mean '--max-new-tokens'?" for a slip of the keys, and for the beginning of a name.
std::string nearest_flag(const std::string& name, const std::vector<std::string>& own) {
  if (const std::string near = did_you_mean(name, own); !near.empty()) return near;
  const auto it = std::find_if(own.begin(), own.end(), [&](const auto& flag) { return flag.starts_with(name); });
  return it == own.end() || name.size() < 4 ? "" : fmt::format(", did you mean '{}'?", *it);
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
  if (name.starts_with("-")) fail_usage("{}: unknown flag of kvdiv {}{}", name, command.name, nearest_flag(name, own));
  fail_usage("'{}': kvdiv {} takes no such argument; see kvdiv {} --help", word, command.name, command.name);
}

/// A config file's values: the same names as the flags, in either spelling; a list may be one value or a text with commas.
Json read_config(const std::string& file, const Command& command) {
  Json values = Json::object();
  const std::string where = "--config " + file;
  const Json config = read_json_file(file);
  if (!config.is_object()) fail_usage("{}: expected an object", where);
  std::vector<std::string> keys;
  for (const FieldInfo& field : command.fields)
    if (field.key != "config") keys.push_back(json_key(field.key));  // a file in a file is not read
  for (const auto& [name, value] : config.items()) {
    const std::string key = json_key(name);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail_usage("{}: key {}: kvdiv {} has no such setting{}", where, short_name(name), command.name,
                 did_you_mean(key, keys));
    if (values.contains(key)) fail_usage("{}: key {} is there in both spellings", where, key);
    const auto field = std::find_if(command.fields.begin(), command.fields.end(),
                                    [&](const FieldInfo& f) { return json_key(f.key) == key; });
    values[key] = parse_config_value(*field, value, where + ": key " + name);
  }
  refuse_contradictions(command, values, where + ": ");
  return values;
}

/// What stands on the command line itself.
Json read_flags(const Command& command, Bound& bound) {
  Json flags = Json::object();
  for (const FieldInfo& field : command.fields) {
    const auto& texts = bound.texts[field.key];
    const bool is_switch = field.kind == FieldKind::boolean;
    const std::size_t n = is_switch ? bound.switches.at(field.key)->count() : texts.size();
    if (is_switch && n > 1) fail_usage("--{}: given {} times", field.key, n);
    if (n > 0) flags[json_key(field.key)] = parse_flag(field, texts);
  }
  refuse_contradictions(command, flags, "");
  return flags;
}

Invocation make_invocation(const Command& command, Bound& bound, const std::vector<std::string>& arguments) {
  const auto rest = bound.app->remaining();
  if (!rest.empty()) refuse_word(rest.front(), command);
  Invocation invocation;
  invocation.argv = arguments;
  invocation.positionals = bound.positionals;
  for (const std::string& word : bound.positionals)
    if (word.empty()) fail_usage("an argument of kvdiv {} is an empty text", command.name);
  const Json flags = read_flags(command, bound);
  Json& values = invocation.values;
  if (!command.default_config.empty()) {
    values = read_config((find_data_paths().configs / command.default_config).string(), command);
    // The sample is one of GSM8K's rows; a file of the user's own is used whole.
    if (flags.contains("prompts"))
      for (const char* key : {"sample_size", "sample_seed"}) values.erase(key);
  }
  if (flags.contains("config")) put_over(values, read_config(flags["config"].get<std::string>(), command));
  put_over(values, flags);
  refuse_unused(command, flags, values);
  return invocation;
}

/// The first word is a command, or one of the two flags that need none.
void refuse_first_word(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  if (word == "--help" || word == "-h" || word == "--version") return;
  if (word.starts_with("-")) fail_usage("{}: kvdiv takes the command first: kvdiv <command> {} …", word, word);
  if (std::find(names.begin(), names.end(), word) == names.end())
    fail_usage("'{}' is not a command of kvdiv{} (available: {})", word, did_you_mean(word, names),
               fmt::join(names, ", "));
}

/// Words that the parser would take for something else than is written. `words` begins with the command.
void refuse_odd_words(const std::vector<std::string>& words) {
  for (const Command& command : commands()) {
    if (command.name != words.front()) continue;
    for (const std::string& word : words) {
      if (word == "--") break;
      if (word.size() > 1 && word.starts_with("[") && word.ends_with("]"))  // would be split, and lose its brackets
        fail_usage("'{}': write a list as a,b without brackets, and a path in brackets as ./{}", word, word);
      for (const FieldInfo& field : command.fields)
        if (field.kind == FieldKind::boolean && word.starts_with("--" + field.key + "="))
          fail_usage("--{}: takes no value, found '{}'", field.key, word.substr(field.key.size() + 3));
    }
  }
}

int execute(const Command& command, const Invocation& invocation) {
  try {
    // A command with results for arguments reads them and nothing else.
    const int code = command.positional.empty() ? command.execute(invocation)
                                                : reading(fmt::format("{}", fmt::join(invocation.positionals, " or ")),
                                                          [&] { return command.execute(invocation); });
    flush_stdout();
    return code;
  } catch (const std::system_error&) {
    flush_stdout();  // says so if it was stdout
    throw;
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  open_standard_streams();
  CLI::App root("Is decoding with a key/value cache equivalent to recomputing the whole prefix?", "kvdiv");
  root.set_version_flag("--version", std::string("kvdiv ") + KVDIV_VERSION);
  root.require_subcommand(1);
  root.allow_extras();
  root.footer("kvdiv <command> --help shows a command's flags and examples.");
  std::vector<Bound> bound(commands().size());
  for (std::size_t i = 0; i < bound.size(); ++i) bind(root, commands()[i], bound[i]);
  std::vector<std::string> words;
  for (const std::string& argument : arguments) words.push_back(normalise_flag(argument));
  if (words.empty()) {
    fmt::print("{}", root.help());
    return static_cast<int>(ErrorKind::usage);
  }
  refuse_first_word(words.front());
  refuse_odd_words(words);
  std::reverse(words.begin(), words.end());  // the parser takes them from the back
  try {
    root.parse(words);
  } catch (const CLI::Success& success) {
    const int code = root.exit(success);  // --help, --version
    flush_stdout();
    return code;
  } catch (const CLI::ParseError& error) {
    fail_usage("{}; see kvdiv --help", error.what());
  }
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (bound[i].app->parsed()) return execute(commands()[i], make_invocation(commands()[i], bound[i], arguments));
  fail_usage("no command; see kvdiv --help");
}

}  // namespace kvdiv
