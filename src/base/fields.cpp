#include "kvdiv/base/fields.h"

#include <algorithm>

namespace kvdiv {

void fail_json_type(const std::string& where, std::string_view expected, const Json& found) {
  constexpr std::size_t kLongest = 60;
  // Values that were built in memory may hold broken UTF-8; the message is about something else.
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text.resize(kLongest - 3);
    text.resize(std::min(text.size(), invalid_utf8_offset(text)));  // not in the middle of a character
    text += "...";
  }
  fail(ErrorKind::unreadable, "{}: expected {}, found {}", where, expected, text);
}

}  // namespace kvdiv
