// The table of backends: a new one is a file and a row here.
#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "torch_ops.h"

namespace kvdiv {

std::vector<std::string> backend_names() { return {"torch"}; }

std::shared_ptr<const Ops> make_ops(const std::string& backend, const std::string& attention) {
  if (backend != "torch")
    fail_usage("--backend: '{}' is not known{} (available: torch)", backend, did_you_mean(backend, backend_names()));
  if (attention == "eager") return std::make_shared<TorchOps>();
  if (attention == "sdpa") return std::make_shared<TorchSdpaOps>();
  fail_usage("--attention: '{}' is not known (available: eager, sdpa)", attention);
}

}  // namespace kvdiv
