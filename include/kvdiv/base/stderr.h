#pragma once
// Messages for people. A stderr that is closed or full loses them, and must not end a measurement.
#include <cstdio>
#include <string_view>

namespace kvdiv {

inline void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace kvdiv
