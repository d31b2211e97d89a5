#include "kvdiv/base/field_info.h"

#include <algorithm>
#include <charconv>

namespace kvdiv {
namespace {

template <class T>
Json parse_number(const FieldInfo& field, const std::string& text, const char* expected) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail_usage("--{}: {} is out of range", field.key, text);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    fail_usage("--{}: expected {}, found '{}'", field.key, expected, text);
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) fail_usage("--{}: expected a finite number, found '{}'", field.key, text);
  return value;
}

void refuse_unknown(const FieldInfo& field, const std::string& text, const std::string& where) {
  std::vector<std::string> names;
  for (const std::string& name : split(field.choices, ',')) names.push_back(name.substr(name.find_first_not_of(' ')));
  if (std::find(names.begin(), names.end(), text) == names.end())
    fail_usage("{}: '{}' is not one of {}{}", where, text, field.choices, did_you_mean(text, names));
}

Json parse_one(const FieldInfo& field, const std::string& text) {
  switch (field.kind) {
    case FieldKind::integer:
    case FieldKind::list_integer:
      return parse_number<std::int64_t>(field, text, "an integer");
    case FieldKind::number:
    case FieldKind::list_number:
      return parse_number<double>(field, text, "a number");
    default:
      break;
  }
  if (!field.choices.empty()) refuse_unknown(field, text, "--" + field.key);
  if (text.empty()) fail_usage("--{}: expected a value, found an empty text", field.key);
  // "--output --quiet": the value was forgotten, and a directory of that name is not what is meant.
  if (text.starts_with("--")) fail_usage("--{}: expected a value, found the flag '{}'", field.key, text);
  return text;
}

Json without_duplicates(Json list, const std::string& where) {
  for (auto it = list.begin(); it != list.end(); ++it)
    if (std::find(list.begin(), it, *it) != it)
      fail_usage("{}: '{}' is given twice", where, it->is_string() ? it->get<std::string>() : it->dump());
  return list;
}

/// "float16,float32": a list as it is written on the command line.
Json parse_config_list(const FieldInfo& field, const std::string& text, const std::string& where) {
  try {
    return parse_flag(field, {text});
  } catch (const Error& error) {
    throw Error(error.kind(), where + ": " + error.what());
  }
}

/// One value of a config file, which JSON has typed already.
void check_one(const FieldInfo& field, const Json& value, const std::string& where) {
  const auto expect = [&](bool fits, const char* what) {
    if (!fits) fail_usage("{}: expected {}, found {}", where, what, short_dump(value));
  };
  switch (field.kind) {
    case FieldKind::boolean:
      return expect(value.is_boolean(), "true or false");
    case FieldKind::integer:
    case FieldKind::list_integer:
      return expect(as_integer(value).has_value(), "an integer");
    case FieldKind::number:
    case FieldKind::list_number:
      return expect(value.is_number(), "a number");
    default:
      break;
  }
  expect(value.is_string(), "a text");
  if (!field.choices.empty()) refuse_unknown(field, value.get<std::string>(), where);
  expect(value != "", "a text that is not empty");
}

}  // namespace

Json parse_flag(const FieldInfo& field, const std::vector<std::string>& texts) {
  if (field.kind == FieldKind::boolean) return true;
  if (field.kind != FieldKind::texts && texts.size() > 1) fail_usage("--{}: given {} times", field.key, texts.size());
  if (field.kind != FieldKind::texts && !is_comma_list(field.kind)) return parse_one(field, texts.front());
  Json list = Json::array();
  for (const std::string& part : field.kind == FieldKind::texts ? texts : split(texts.front(), ',')) {
    Json value = parse_one(field, part);
    if (std::find(list.begin(), list.end(), value) != list.end())
      fail_usage("--{}: '{}' is given twice", field.key, part);  // as it is written: 5e-1 is 0.5
    list.push_back(std::move(value));
  }
  return list;
}

Json parse_config_value(const FieldInfo& field, const Json& value, const std::string& where) {
  const bool is_list = is_comma_list(field.kind) || field.kind == FieldKind::texts;
  if (value.is_null()) {
    if (!field.default_value.is_null()) fail_usage("{}: expected a value, found null", where);
    return value;
  }
  if (!is_list) {
    check_one(field, value, where);
    return value;
  }
  if (value.is_string() && is_comma_list(field.kind)) return parse_config_list(field, value.get<std::string>(), where);
  Json list = value.is_array() ? value : Json::array({value});
  if (list.empty()) fail_usage("{}: the list is empty", where);
  for (const Json& item : list) check_one(field, item, where);
  return without_duplicates(std::move(list), where);
}

}  // namespace kvdiv
