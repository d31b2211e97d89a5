// Which of the compiled kernels are used.
#include <fmt/ranges.h>

#include <cstdlib>

#include "compiled_kernels.h"
#include "kvdiv/base/error.h"

namespace kvdiv {
namespace {

const std::vector<const KernelTable*>& tables() {
  static const std::vector<const KernelTable*> all = compiled_kernels();
  return all;
}

}  // namespace

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const KernelTable* t : tables()) names.emplace_back(t->name);
  return names;
}

const KernelTable& kernels_named(const std::string& name) {
  for (const KernelTable* t : tables())
    if (name == t->name) return *t;
  fail_usage("KVDIV_KERNELS: '{}' is not to be had on this CPU (it has: {})", name, fmt::join(kernel_names(), ", "));
}

const KernelTable& kernels() {
  if (tables().empty())
    fail_usage("--backend invariant needs a CPU with fused multiply-adds (x86-64: AVX2 and FMA); use --backend torch");
  const char* const named = std::getenv("KVDIV_KERNELS");
  return named != nullptr && *named != '\0' ? kernels_named(named) : *tables().front();
}

}  // namespace kvdiv
