#pragma once
// A GPU, reached through a module of its own (libkvdiv_cuda.so) that is loaded when a GPU is asked for: the program itself
// needs no CUDA, starts on any machine, and says what is missing where there is no GPU.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvdiv/base/json.h"
#include "kvdiv/base/step_metrics.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv {

struct DeviceMemory {
  std::uint64_t free = 0;  ///< bytes that can be allocated now, those that libtorch's allocator keeps unused counted in
  std::uint64_t total = 0;  ///< bytes of the device
  std::uint64_t peak = 0;   ///< most bytes that tensors have held at once
};

/// Seconds between begin and end on the device's own clock. Neither call waits for the device.
class DeviceStopwatch {
 public:
  virtual ~DeviceStopwatch() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  /// Of all intervals so far; waits for the last one's end.
  virtual double seconds() = 0;
};

/// Launches that were recorded once and are repeated as they were: same kernels, same memory, same bits.
class RecordedLaunches {
 public:
  virtual ~RecordedLaunches() = default;
  virtual void replay() = 0;
};

/// Two rows of logits [V] on the device. `off` undefined: what one row tells (top1_on, margin_on, tie_on, n_nonfinite).
struct LogitPair {
  at::Tensor on_V, off_V;
};

class DeviceModule {
 public:
  DeviceModule() = default;
  DeviceModule(const DeviceModule&) = delete;
  DeviceModule& operator=(const DeviceModule&) = delete;
  virtual ~DeviceModule() = default;

  virtual c10::Device device() const = 0;
  /// {gpu, compute_capability, n_multiprocessors, memory_bytes, driver, cuda, cublas}: the report's environment.
  virtual Json describe() const = 0;
  /// Switches that only a GPU has, as the libraries report them now.
  virtual Json read_numerics() const = 0;
  virtual DeviceMemory memory() const = 0;

  /// The operations of a backend that only a GPU has, or has in another form. `torch`: ATen's, for what the backend leaves
  /// to them. Throws Error{usage} for arguments that the backend does not know.
  virtual std::shared_ptr<const Ops> make_ops(const std::string& backend, std::shared_ptr<const Ops> torch) const = 0;

  /// Metrics of each pair in FP64, computed on the device; if `rows` is not null, also every row that the pairs name, in
  /// FP64 on the host (on, then off, pair after pair). One transfer, which is also the only wait.
  virtual std::vector<StepMetrics> compare(std::span<const LogitPair> pairs,
                                           std::vector<std::vector<double>>* rows) const = 0;

  /// Raises slots_2L[0][index] to the largest finite |x| and slots_2L[1][index] to the largest |x| of all, NaN above
  /// infinity; FP32, on the device. One launch, and the order of the elements does not matter.
  virtual void note_max_abs(const at::Tensor& x, const at::Tensor& slots_2L, std::int64_t index) const = 0;

  virtual std::unique_ptr<DeviceStopwatch> stopwatch() const = 0;
  /// Runs `launches` in recording: nothing is computed until the first replay. It must allocate what it returns through
  /// libtorch, and must not wait for the device.
  virtual std::unique_ptr<RecordedLaunches> record(const std::function<void()>& launches) const = 0;
  virtual void synchronize() const = 0;
};

/// Loads the module from `<program>/libkvdiv_cuda.so` or `<program>/../lib/libkvdiv_cuda.so` and starts the GPU. Throws
/// Error{usage} that says what is missing: the module (a build without CUDA), a library it needs, a driver, a GPU.
const DeviceModule& load_cuda();
/// The same if it can be had; null otherwise, and the reason in `why`.
const DeviceModule* try_load_cuda(std::string& why);
/// The loaded module of a device: null for the CPU. Internal error for a GPU whose module is not loaded.
const DeviceModule* module_of(c10::Device device);

/// Name of the function that the module exports: `const kvdiv::DeviceModule* kvdiv_cuda_module(std::string& why)`.
inline constexpr const char* kModuleEntry = "kvdiv_cuda_module";
/// What both sides must have been built with; another text is another version of this header.
inline constexpr const char* kModuleVersionEntry = "kvdiv_cuda_module_version";

}  // namespace kvdiv
