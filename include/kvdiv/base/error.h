#pragma once
// Errors: one kind per exit code, one or two lines of text: what, where, expected and found, remedy.
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace kvdiv {

/// The values are the process's exit codes.
enum class ErrorKind : int {
  violated = 1,             ///< a contract does not hold
  usage = 2,                ///< flags, their values, or their combination
  unreadable = 3,           ///< model, prompts or result cannot be read or written
  invalid_measurement = 4,  ///< a control failed, non-finite logits, too little data
  interrupted = 5,          ///< SIGINT or SIGTERM; what was finished is on disk
  internal = 70,            ///< a broken invariant: a defect of kvdiv
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind error_kind, std::string message) : std::runtime_error(std::move(message)), kind_(error_kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// Throws Error{kind, formatted text}.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::usage, format, std::forward<Args>(args)...);
}

template <class... Args>
[[noreturn]] void fail_unreadable(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::unreadable, format, std::forward<Args>(args)...);
}

}  // namespace kvdiv
