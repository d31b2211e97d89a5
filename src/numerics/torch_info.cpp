#include "kvdiv/numerics/torch_info.h"

#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

namespace kvdiv {

std::string libtorch_version() { return TORCH_VERSION; }

std::string message_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  return from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
}

}  // namespace kvdiv
