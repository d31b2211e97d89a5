#pragma once
// What the command line needs to know of a field: derived from the field list, so that a flag is one line there.
#include <string>
#include <vector>

#include "kvdiv/base/fields.h"

namespace kvdiv {

/// How a flag's text becomes JSON. list_*: comma-separated. texts: one value a flag, the flag may be repeated.
enum class FieldKind { boolean, integer, number, text, list_integer, list_number, list_text, texts };

/// Whether its value is a comma-separated text (texts are lists of another make).
constexpr bool is_comma_list(FieldKind kind) {
  return kind == FieldKind::list_integer || kind == FieldKind::list_number || kind == FieldKind::list_text;
}

struct FieldInfo {
  std::string key;  ///< kebab-case
  std::string help;
  FieldKind kind = FieldKind::text;
  std::string choices;  ///< names of an enum, or empty
  Json default_value;
};

/// The JSON value of a flag's text(s). Throws Error{usage} that names the flag.
Json parse_flag(const FieldInfo& field, const std::vector<std::string>& texts);

/// The value of a config file, where a list may be one value or a text with commas. Throws Error{usage} that begins with
/// `where`: a wrong type, an unknown name (with the nearest), an empty list, a list's item given twice.
Json parse_config_value(const FieldInfo& field, const Json& value, const std::string& where);

namespace detail {

template <class T>
struct KindOf {
  static constexpr FieldKind kind = FieldKind::text;
  static std::string choices() {
    if constexpr (NamedEnum<T>) return all_names<T>();
    return {};
  }
};
template <>
struct KindOf<bool> {
  static constexpr FieldKind kind = FieldKind::boolean;
  static std::string choices() { return {}; }
};
template <std::integral T>
struct KindOf<T> {
  static constexpr FieldKind kind = FieldKind::integer;
  static std::string choices() { return {}; }
};
template <>
struct KindOf<double> {
  static constexpr FieldKind kind = FieldKind::number;
  static std::string choices() { return {}; }
};
template <class T>
struct KindOf<std::optional<T>> : KindOf<T> {};
template <class T>
struct KindOf<std::vector<T>> {
  static constexpr FieldKind kind = std::integral<T>         ? FieldKind::list_integer
                                    : std::floating_point<T> ? FieldKind::list_number
                                                             : FieldKind::list_text;
  static std::string choices() { return KindOf<T>::choices(); }
};
template <>
struct KindOf<std::vector<std::string>> {
  static constexpr FieldKind kind = FieldKind::texts;
  static std::string choices() { return {}; }
};

struct InfoLister {
  std::vector<FieldInfo> out = {};
  template <class T>
  void field(std::string_view key, T& member, std::string_view help = {}) {
    out.push_back({std::string(key), std::string(help), KindOf<T>::kind, KindOf<T>::choices(),
                   to_json_value(static_cast<const T&>(member))});
  }
};

}  // namespace detail

template <Described S>
std::vector<FieldInfo> field_infos() {
  S s{};
  detail::InfoLister lister;
  describe_fields(lister, s);
  return std::move(lister.out);
}

}  // namespace kvdiv
