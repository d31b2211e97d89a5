#pragma once
// A command of the tool: what it is called, which fields it takes, what it does. The table is in commands.cpp.
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvdiv/base/field_info.h"
#include "kvdiv/base/fields.h"

namespace kvdiv {

/// What the command line said: flags as JSON under their snake_case keys, over the config file's values.
struct Invocation {
  Json values = Json::object();
  std::vector<std::string> positionals;
  std::vector<std::string> argv;
};

struct Command {
  std::string name, summary;
  std::vector<FieldInfo> fields;
  std::string positional;  ///< name of its positional arguments for the help, empty if it has none
  std::vector<std::string> examples;
  std::function<int(const Invocation&)> execute;  ///< returns the exit code
  std::string default_config = {};  ///< a file of configs/ whose values stand under the flags and --config
};

/// "flags.max_new_tokens: …" as "--max-new-tokens: …".
inline std::string flag_message(std::string message) {
  constexpr std::string_view kPrefix = "flags.";
  if (!message.starts_with(kPrefix)) return message;
  std::replace(message.begin(),
               message.begin() + static_cast<std::ptrdiff_t>(std::min(message.find(':'), message.size())), '_', '-');
  return "--" + message.substr(kPrefix.size());
}

/// Reads a described struct out of the invocation; a value of the wrong type is a usage error.
template <Described S>
S take(const Invocation& invocation) {
  S s{};
  try {
    from_json_value(invocation.values, s, "flags");
  } catch (const Error& error) {
    throw Error(ErrorKind::usage, flag_message(error.what()));
  }
  return s;
}

/// The fields of several structs, in order.
template <Described... S>
std::vector<FieldInfo> all_fields() {
  std::vector<FieldInfo> out;
  const auto append = [&](std::vector<FieldInfo> more) { out.insert(out.end(), more.begin(), more.end()); };
  (append(field_infos<S>()), ...);
  return out;
}

const std::vector<Command>& commands();

}  // namespace kvdiv
