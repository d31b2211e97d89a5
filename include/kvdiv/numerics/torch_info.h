#pragma once
#include <exception>
#include <string>

namespace kvdiv {

/// Version of the libtorch that this program was compiled against, e.g. "2.11.0".
std::string libtorch_version();

/// what() of an exception; of libtorch's own without the backtrace.
std::string message_of(const std::exception& error);

}  // namespace kvdiv
