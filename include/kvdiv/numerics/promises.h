#pragma once
// What a backend promises of its bits, beside what its operations do (ops.h).
#include <string>

namespace kvdiv {

/// "no": the backend promises that its bits are the same with any number of CPU threads, and a test holds it to that.
/// "possibly": it does not. `backend` as in --backend; an unknown name is an internal error.
std::string bits_depend_on_threads(const std::string& backend);

}  // namespace kvdiv
