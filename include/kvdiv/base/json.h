#pragma once
// The JSON type of the project: keys keep the order in which they are listed, so that output is stable and readable.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace kvdiv {
using Json = nlohmann::ordered_json;

/// The value as ASCII JSON of at most `max` characters, for messages.
std::string short_dump(const Json& value, std::size_t max = 80);

/// A name out of a file (a key, a tensor) for messages: escaped, cut to a readable length, without quotes.
std::string short_name(const std::string& name);

/// The value of an integer that fits, however it is stored; none for anything else (1.0 is no integer).
std::optional<std::int64_t> as_integer(const Json& value);

}  // namespace kvdiv
