#pragma once
// Reports that something else than kvdiv wrote, or somebody has changed.
#include <string>
#include <string_view>
#include <utility>

#include "kvdiv/base/error.h"
#include "kvdiv/base/json.h"

namespace kvdiv {

/// What f gives. A value of another type than f expects becomes Error{unreadable} that names `where`: f must read
/// nothing but that.
template <class F>
auto reading(const std::string& where, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Json::exception& error) {  // "[json.exception.type_error.302] type must be string, but is null"
    const std::string_view text = error.what();
    const auto end = text.find("] ");
    fail_unreadable("{}: is not as kvdiv writes it: {}", where, text.substr(end == text.npos ? 0 : end + 2));
  }
}

}  // namespace kvdiv
