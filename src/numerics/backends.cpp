// The table of backends: a new one is a file and a row here.
#include <fmt/ranges.h>

#include <algorithm>

#include "invariant_ops.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/promises.h"
#include "order_ops.h"
#include "torch_ops.h"

namespace kvdiv {
namespace {

using Make = std::shared_ptr<const Ops> (*)(const std::string& backend, const std::string& attention);

std::shared_ptr<const Ops> make_torch(const std::string&, const std::string& attention) {
  if (attention == "sdpa") return std::make_shared<TorchSdpaOps>();
  return std::make_shared<TorchOps>();
}

std::shared_ptr<const Ops> make_invariant(const std::string&, const std::string&) {
  return std::make_shared<InvariantOps>(kernels());
}

std::shared_ptr<const Ops> make_order(const std::string& backend, const std::string&) {
  return std::make_shared<OrderOps>(parse_reductions(backend));
}

std::shared_ptr<const Ops> make_by_module(const std::string& backend, const std::string& attention) {
  return load_cuda().make_ops(backend, make_torch(backend, attention));
}

struct Backend {
  std::string name;  ///< what is written before a ':', if the backend takes arguments behind one
  std::vector<std::string> attention;
  bool takes_arguments = false;
  bool promises_threads = false;            ///< the same bits with any number of CPU threads
  Make on_cpu = nullptr, on_gpu = nullptr;  ///< null: the backend is not to be had there
};

const std::vector<Backend>& backends() {
  static const std::vector<Backend> table{
      {"torch", {"eager", "sdpa"}, false, false, make_torch, make_by_module},
      {"invariant", {"eager"}, false, true, make_invariant, make_by_module},
      {"order", {"eager"}, true, true, make_order, nullptr},
      {"cublaslt", {"eager"}, true, false, nullptr, make_by_module},
  };
  return table;
}

const Backend* find_backend(const std::string& name) {
  const auto it = std::find_if(backends().begin(), backends().end(), [&](const Backend& b) { return b.name == name; });
  return it == backends().end() ? nullptr : &*it;
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend& b : backends()) names.push_back(b.name);
  return names;
}

void require_backend(const std::string& backend, const std::string& attention) {
  const Backend* const found = find_backend(backend.substr(0, backend.find(':')));
  if (const std::size_t comma = backend.find(',');
      found == nullptr && find_backend(backend.substr(0, comma)) != nullptr)
    fail_usage("--backend {}: commas belong to orders; give each backend its own: --backend {} --backend {}", backend,
               backend.substr(0, comma), backend.substr(comma + 1));
  if (found == nullptr || (found->name != backend && !found->takes_arguments))
    fail_usage("--backend: '{}' is not known{} (available: {})", backend, did_you_mean(backend, backend_names()),
               fmt::join(backend_names(), ", "));
  if (std::find(found->attention.begin(), found->attention.end(), attention) == found->attention.end())
    fail_usage("--attention: '{}' is not to be had with --backend {} (available: {})", attention, backend,
               fmt::join(found->attention, ", "));
}

std::string bits_depend_on_threads(const std::string& backend) {
  const Backend* const found = find_backend(backend.substr(0, backend.find(':')));
  if (found == nullptr) fail(ErrorKind::internal, "no backend {}", backend);
  return found->promises_threads ? "no" : "possibly";
}

std::shared_ptr<const Ops> make_ops(const std::string& backend, const std::string& attention, c10::Device device) {
  require_backend(backend, attention);
  const Backend& found = *find_backend(backend.substr(0, backend.find(':')));
  const Make make = device.is_cpu() ? found.on_cpu : found.on_gpu;
  if (make == nullptr)
    fail_usage("--backend {}: not to be had with --device {}; use --device {}", backend,
               device.is_cpu() ? "cpu" : "cuda", device.is_cpu() ? "cuda" : "cpu");
  return make(backend, attention);
}

}  // namespace kvdiv
