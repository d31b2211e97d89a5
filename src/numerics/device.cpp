#include "kvdiv/numerics/device.h"

#include <dlfcn.h>

#include <filesystem>

#include "kvdiv/base/error.h"
#include "kvdiv/base/version.h"

namespace kvdiv {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModuleFile = "libkvdiv_cuda.so";

struct Loaded {
  const DeviceModule* module = nullptr;
  std::string why;  ///< why there is none
};

std::string find_module() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& dir : {program, program / ".." / "lib"})
    if (fs::is_regular_file(dir / kModuleFile, error)) return (dir / kModuleFile).string();
  return {};
}

/// libtorch asks once whether CUDA is there and keeps the answer, so the module comes before anything that asks. It stays
/// loaded: its kernels are in libtorch's tables. Names are resolved when they are called: libtorch_cuda.so names functions
/// of libraries that no single GPU needs.
Loaded load() {
  const std::string file = find_module();
  if (file.empty()) return {nullptr, "this build has no CUDA module; build with the preset cuda (see README)"};
  void* const library = dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return {nullptr, std::string("the CUDA module does not load: ") + (reason != nullptr ? reason : file) +
                         " (scripts/get_gpu_torch brings what it needs)"};
  }
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(library, kModuleVersionEntry));
  const auto entry = reinterpret_cast<const DeviceModule* (*)(std::string&)>(dlsym(library, kModuleEntry));
  if (version == nullptr || entry == nullptr || std::string(version()) != KVDIV_VERSION)
    return {nullptr, file + " is of another version of kvdiv (this is " KVDIV_VERSION ")"};
  Loaded out;
  out.module = entry(out.why);
  return out;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

const DeviceModule& load_cuda() {
  std::string why;
  if (const DeviceModule* module = try_load_cuda(why)) return *module;
  fail_usage("--device cuda: {}; use --device cpu", why);
}

const DeviceModule* try_load_cuda(std::string& why) {
  why = loaded().why;
  return loaded().module;
}

const DeviceModule* module_of(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  if (loaded().module == nullptr) fail(ErrorKind::internal, "a tensor of {} without its module", device.str());
  return loaded().module;
}

}  // namespace kvdiv
