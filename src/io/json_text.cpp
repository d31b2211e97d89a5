// Strict JSON. The library's own parser keeps the last of two equal keys and stops silently at a NUL byte; a file that
// means two things must not be read as one of them.
#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/io/files.h"

namespace kvdiv {
namespace {

std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto start = before.rfind('\n');
  const std::size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

/// The library quotes what it read last, which may end inside a character.
std::string readable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = std::min(invalid_utf8_offset(text), text.size());
    out += text.substr(0, n);
    text.remove_prefix(n);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(1);
  }
  return out;
}

/// Builds the value and records the first refusal. One frame a level, so that deep nesting costs no stack.
class StrictBuilder {
 public:
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return put(value); }
  bool string(Json::string_t& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return refuse("binary value"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(Json::string_t& key) {
    Frame& frame = frames_.back();
    if (!frame.keys.insert(key).second)
      return refuse(fmt::format("key '{}' occurs twice in one object", short_name(key)));
    frame.key = std::move(key);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    std::string text = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …": what follows the place.
    if (const auto at = text.find(": "); at != std::string::npos)
      text = text.substr(at + 2);
    else if (const auto end = text.find("] "); end != std::string::npos)
      text = text.substr(end + 2);
    text = readable(std::string_view(text).substr(0, 200)) + (text.size() > 200 ? "..." : "");
    error_position_ = position > 0 ? position - 1 : 0;
    return refuse(std::move(text));
  }

  const std::string& error() const { return error_; }
  std::size_t error_position() const { return error_position_; }
  Json take() { return std::move(root_); }

 private:
  struct Frame {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool refuse(std::string text) {
    if (error_.empty()) error_ = text.empty() ? "not JSON" : std::move(text);
    return false;
  }

  bool open(Json value) {
    if (frames_.size() >= static_cast<std::size_t>(kMaxJsonDepth))
      return refuse(fmt::format("more than {} levels of nesting", kMaxJsonDepth));
    frames_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json done = std::move(frames_.back().value);
    frames_.pop_back();
    return put(std::move(done));
  }

  bool put(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_array()) {
      frame.value.push_back(std::move(value));
    } else {
      // The ordered map searches all its keys on insertion; this one is new, so append to the vector that it is.
      auto& members = static_cast<Json::object_t::Container&>(frame.value.get_ref<Json::object_t&>());
      members.emplace_back(std::move(frame.key), std::move(value));
    }
    return true;
  }

  std::vector<Frame> frames_;
  Json root_;
  std::string error_;
  std::size_t error_position_ = std::string::npos;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  if (const std::size_t bad = invalid_utf8_offset(text); bad != std::string_view::npos)
    fail_unreadable("{}: not UTF-8 at byte {}", where, bad);
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail_unreadable("{}: not JSON: a NUL byte at byte {}", where, nul);
  StrictBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    if (builder.error_position() == std::string::npos) fail_unreadable("{}: {}", where, builder.error());
    fail_unreadable("{}: not JSON: {}: {}", where, line_and_column(text, builder.error_position()), builder.error());
  }
  return builder.take();
}

}  // namespace kvdiv
