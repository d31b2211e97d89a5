#include "kvdiv/model/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "kvdiv/base/error.h"
#include "kvdiv/base/text.h"
#include "kvdiv/numerics/device.h"

namespace kvdiv {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// A value in kB of /proc/meminfo or /proc/self/status, in bytes.
std::uint64_t proc_bytes(const char* file, const std::string& key, std::uint64_t otherwise) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(key.size())) * 1024;
  return otherwise;
}

std::uint64_t number_in(const char* file) {
  std::ifstream in(file);
  std::uint64_t value = kUnlimited;
  return in >> value ? value : kUnlimited;  // "max" is no number: unlimited
}

std::uint64_t cgroup_available() {
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit == kUnlimited || used == kUnlimited ? kUnlimited : limit - std::min(limit, used);
}

std::uint64_t address_space_available() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::uint64_t used = proc_bytes("/proc/self/status", "VmSize:", 0);
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

}  // namespace

std::uint64_t available_memory_bytes(c10::Device device) {
  if (const DeviceModule* module = module_of(device)) return module->memory().free;
  return std::min(
      {proc_bytes("/proc/meminfo", "MemAvailable:", kUnlimited), cgroup_available(), address_space_available()});
}

std::uint64_t peak_rss_bytes() {
  // Not getrusage: its maximum outlives exec, so that it may be that of the program which started this one.
  return proc_bytes("/proc/self/status", "VmHWM:", 0);
}

void require_memory(const ModelConfig& config, DType dtype, std::int64_t length, c10::Device device) {
  const MemoryNeed need = memory_need(config, dtype, length);
  const std::uint64_t available = available_memory_bytes(device);
  if (need.total() <= available) return;
  fail_unreadable(
      "this run needs {} bytes ({}: weights {}, cache {}, activations over {} positions {}) and {} are available{}; "
      "use a smaller model, a 16-bit --dtype, or shorter prompts",
      with_commas(need.total()), name_of(dtype), human_bytes(static_cast<double>(need.weights)),
      human_bytes(static_cast<double>(need.cache)), length, human_bytes(static_cast<double>(need.activations)),
      human_bytes(static_cast<double>(available)), device.is_cpu() ? "" : " on the GPU");
}

}  // namespace kvdiv
