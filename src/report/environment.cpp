#include "kvdiv/report/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string_view>

#include "kvdiv/base/git_commit.h"
#include "kvdiv/base/version.h"

extern char** environ;

namespace kvdiv {
namespace {

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// The widest of the instruction sets that change which kernels run.
std::string cpu_features() {
  std::ifstream in("/proc/cpuinfo");
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    for (const char* flag : {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16"})
      if ((line + ' ').find(std::string(" ") + flag + " ") != std::string::npos)
        out += (out.empty() ? "" : " ") + std::string(flag);
    break;
  }
  return out;
}

std::string operating_system() {
  utsname u{};
  if (uname(&u) != 0) return "unknown";
  return std::string(u.sysname) + " " + u.release + " " + u.machine;
}

Json numeric_variables() {
  Json out = Json::object();
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry(*e);
    for (const std::string_view prefix : {"MKL_", "OMP_", "KMP_", "ONEDNN_", "DNNL_", "OPENBLAS_", "LRU_CACHE_CAPACITY",
                                          "ATEN_CPU_CAPABILITY", "CUBLAS", "CUDA_VISIBLE_DEVICES",
                                          "CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_TF32", "PYTORCH_", "TORCH_", "KVDIV_"})
      if (entry.starts_with(prefix))
        out[std::string(entry.substr(0, entry.find('=')))] = entry.substr(entry.find('=') + 1);
  }
  return out;
}

std::string stamp(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &utc)};
}

}  // namespace

Json describe_environment(int n_threads, const Json& gpu) {
  Json out = {{"cpu", cpu_name()},
              {"cpu_features", cpu_features()},
              {"n_cores", sysconf(_SC_NPROCESSORS_ONLN)},
              {"n_threads", n_threads},
              {"device", gpu.is_null() ? "cpu" : "cuda"},
              {"gpu", nullptr},
              {"driver", nullptr},
              {"cuda", nullptr},
              {"cublas", nullptr},
              {"os", operating_system()},
              {"env_vars", numeric_variables()}};
  if (!gpu.is_null()) out.update(gpu);
  return out;
}

Json describe_tool(const std::string& libtorch_version) {
  return {{"name", "kvdiv"},
          {"version", KVDIV_VERSION},
          {"numeric_version", KVDIV_NUMERIC_VERSION},
          {"git_commit", KVDIV_GIT_COMMIT[0] != '\0' ? Json(KVDIV_GIT_COMMIT) : Json(nullptr)},
          {"build_type", KVDIV_BUILD_TYPE},
          {"compiler", KVDIV_COMPILER},
          {"libtorch", libtorch_version}};
}

std::string utc_stamp() { return stamp("%Y-%m-%dT%H:%M:%SZ"); }
std::string utc_stamp_compact() { return stamp("%Y%m%dT%H%M%SZ"); }

}  // namespace kvdiv
