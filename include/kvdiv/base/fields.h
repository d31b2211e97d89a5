#pragma once
// Field lists. A struct says its fields once,
//
//   template <class V> void describe_fields(V& v, RunParams& p) {
//     v.field("max-new-tokens", p.max_new_tokens, "new tokens per prompt");
//   }
//
// and gets flags, help, JSON in and JSON out from that list. Keys are written in kebab-case where they are flags; in JSON
// the dashes are underscores. A member may be: bool, an integer, double, std::string, a named enum, Json, std::optional
// or std::vector of such, or another described struct.
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kvdiv/base/enums.h"
#include "kvdiv/base/json.h"
#include "kvdiv/base/text.h"

namespace kvdiv {

namespace detail {
struct ProbeVisitor {
  template <class T>
  void field(std::string_view, T&, std::string_view = {}) {}
};
}  // namespace detail

template <class S>
concept Described = requires(detail::ProbeVisitor& v, S& s) {
  describe_fields(v, s);
};

inline std::string json_key(std::string_view key) {
  std::string out(key);
  for (char& c : out)
    if (c == '-') c = '_';
  return out;
}

// ---- out -----------------------------------------------------------------------------------------------------------

inline Json to_json_value(bool value) { return value; }
inline Json to_json_value(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
template <std::integral T>
Json to_json_value(T value) {
  return value;
}
inline Json to_json_value(const std::string& value) { return value; }
inline Json to_json_value(const Json& value) { return value; }
template <NamedEnum E>
Json to_json_value(E value) {
  return std::string(name_of(value));
}
template <class T>
Json to_json_value(const std::optional<T>& value);
template <class T>
Json to_json_value(const std::vector<T>& values);
template <Described S>
Json to_json_value(const S& s);

namespace detail {
struct JsonWriter {
  Json out = Json::object();
  template <class T>
  void field(std::string_view key, const T& member, std::string_view = {}) {
    out[json_key(key)] = to_json_value(member);
  }
};
}  // namespace detail

template <class T>
Json to_json_value(const std::optional<T>& value) {
  return value ? to_json_value(*value) : Json(nullptr);
}
template <class T>
Json to_json_value(const std::vector<T>& values) {
  Json out = Json::array();
  for (const auto& value : values) out.push_back(to_json_value(static_cast<const T&>(value)));
  return out;
}
template <Described S>
Json to_json_value(const S& s) {
  detail::JsonWriter writer;
  describe_fields(writer, const_cast<S&>(s));  // describe_fields is written once, for reading and writing
  return std::move(writer.out);
}

// ---- in ------------------------------------------------------------------------------------------------------------

/// Where a value is, for messages: "config.json: key max_new_tokens".
[[noreturn]] void fail_json_type(const std::string& where, std::string_view expected, const Json& found);

inline void from_json_value(const Json& j, bool& value, const std::string& where) {
  if (!j.is_boolean()) fail_json_type(where, "true or false", j);
  value = j.get<bool>();
}
inline void from_json_value(const Json& j, double& value, const std::string& where) {
  if (j.is_null()) {
    value = std::numeric_limits<double>::quiet_NaN();  // non-finite numbers are written as null
    return;
  }
  if (!j.is_number()) fail_json_type(where, "a number", j);
  value = j.get<double>();
}
template <std::integral T>
void from_json_value(const Json& j, T& value, const std::string& where) {
  if (!j.is_number_integer()) fail_json_type(where, "an integer", j);
  if (j.is_number_unsigned() ? !std::in_range<T>(j.get<std::uint64_t>()) : !std::in_range<T>(j.get<std::int64_t>()))
    fail_json_type(where, "an integer that fits", j);
  value = j.get<T>();
}
inline void from_json_value(const Json& j, std::string& value, const std::string& where) {
  if (!j.is_string()) fail_json_type(where, "a text", j);
  value = j.get<std::string>();
}
inline void from_json_value(const Json& j, Json& value, const std::string&) { value = j; }
template <NamedEnum E>
void from_json_value(const Json& j, E& value, const std::string& where) {
  const auto found = j.is_string() ? find_enum<E>(j.get<std::string>()) : std::nullopt;
  if (!found) fail_json_type(where, "one of " + all_names<E>(), j);
  value = *found;
}
template <class T>
void from_json_value(const Json& j, std::optional<T>& value, const std::string& where);
template <class T>
void from_json_value(const Json& j, std::vector<T>& values, const std::string& where);
template <Described S>
void from_json_value(const Json& j, S& s, const std::string& where);

namespace detail {
struct JsonReader {
  const Json& in;
  const std::string& where;
  std::vector<std::string> known = {};
  template <class T>
  void field(std::string_view key, T& member, std::string_view = {}) {
    const std::string name = json_key(key);
    known.push_back(name);
    if (const auto it = in.find(name); it != in.end()) from_json_value(*it, member, where + "." + name);
  }
};
struct KeyLister {
  std::vector<std::string> keys = {};
  template <class T>
  void field(std::string_view key, T&, std::string_view = {}) {
    keys.emplace_back(key);
  }
};
}  // namespace detail

template <class T>
void from_json_value(const Json& j, std::optional<T>& value, const std::string& where) {
  if (j.is_null()) {
    value.reset();
  } else {
    value.emplace();
    from_json_value(j, *value, where);
  }
}
template <class T>
void from_json_value(const Json& j, std::vector<T>& values, const std::string& where) {
  if (!j.is_array()) fail_json_type(where, "a list", j);
  values.clear();
  for (std::size_t i = 0; i < j.size(); ++i) {
    T value{};
    from_json_value(j[i], value, where + "[" + std::to_string(i) + "]");
    values.push_back(std::move(value));
  }
}

/// Keys that are absent keep the member's value; keys that are unknown are left alone (an older or newer writer).
template <Described S>
void from_json_value(const Json& j, S& s, const std::string& where) {
  if (!j.is_object()) fail_json_type(where, "an object", j);
  detail::JsonReader reader{j, where};
  describe_fields(reader, s);
}

/// The keys of a described struct, as listed (kebab-case where they are flags).
template <Described S>
std::vector<std::string> field_keys() {
  S s{};
  detail::KeyLister lister;
  describe_fields(lister, s);
  return lister.keys;
}

}  // namespace kvdiv
