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
  if (!field.choices.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : split(field.choices, ',')) names.push_back(name.substr(name.find_first_not_of(' ')));
    if (std::find(names.begin(), names.end(), text) == names.end())
      fail_usage("--{}: '{}' is not one of {}{}", field.key, text, field.choices, did_you_mean(text, names));
  }
  return text;
}

}  // namespace

Json parse_flag(const FieldInfo& field, const std::vector<std::string>& texts) {
  if (field.kind == FieldKind::boolean) return true;
  if (field.kind == FieldKind::texts) return texts;
  if (texts.size() > 1) fail_usage("--{}: given {} times", field.key, texts.size());
  if (!is_comma_list(field.kind)) return parse_one(field, texts.front());
  Json list = Json::array();
  for (const std::string& part : split(texts.front(), ',')) {
    Json value = parse_one(field, part);
    if (std::find(list.begin(), list.end(), value) != list.end())
      fail_usage("--{}: '{}' is given twice", field.key, part);
    list.push_back(std::move(value));
  }
  return list;
}

}  // namespace kvdiv
