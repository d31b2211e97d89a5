// The table of backends: a new one is a file and a row here.
#include <fmt/ranges.h>

#include <algorithm>

#include "invariant_ops.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "order_ops.h"
#include "torch_ops.h"

namespace kvdiv {
namespace {

struct Backend {
  std::string name;  ///< what is written before a ':', if the backend takes arguments behind one
  std::vector<std::string> attention;
  std::shared_ptr<const Ops> (*make)(const std::string& backend, const std::string& attention);
  bool takes_arguments = false;
};

const std::vector<Backend>& backends() {
  static const std::vector<Backend> table{
      {"torch",
       {"eager", "sdpa"},
       [](const std::string&, const std::string& attention) -> std::shared_ptr<const Ops> {
         if (attention == "sdpa") return std::make_shared<TorchSdpaOps>();
         return std::make_shared<TorchOps>();
       }},
      {"invariant",
       {"eager"},
       [](const std::string&, const std::string&) -> std::shared_ptr<const Ops> {
         return std::make_shared<InvariantOps>(kernels());
       }},
      {"order",
       {"eager"},
       [](const std::string& backend, const std::string&) -> std::shared_ptr<const Ops> {
         return std::make_shared<OrderOps>(parse_reductions(backend));
       },
       true},
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

std::shared_ptr<const Ops> make_ops(const std::string& backend, const std::string& attention) {
  const Backend* const found = find_backend(backend.substr(0, backend.find(':')));
  if (found == nullptr || (found->name != backend && !found->takes_arguments))
    fail_usage("--backend: '{}' is not known{} (available: {})", backend, did_you_mean(backend, backend_names()),
               fmt::join(backend_names(), ", "));
  if (std::find(found->attention.begin(), found->attention.end(), attention) == found->attention.end())
    fail_usage("--attention: '{}' is not to be had with --backend {} (available: {})", attention, backend,
               fmt::join(found->attention, ", "));
  return found->make(backend, attention);
}

}  // namespace kvdiv
