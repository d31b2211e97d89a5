#include "kvdiv/base/json.h"

#include <utility>

namespace kvdiv {

std::string short_dump(const Json& value, std::size_t max) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > max ? text.substr(0, max - 3) + "..." : text;
}

std::string short_name(const std::string& name) {
  const std::string text = short_dump(Json(name), 200);
  return text.substr(1, text.size() - (text.back() == '"' ? 2 : 1));
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace kvdiv
