// What libkvdiv_cuda.so gives the program: a DeviceModule for the current GPU.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "cublaslt_ops.h"
#include "invariant_ops.h"
#include "kvdiv/base/error.h"
#include "kvdiv/base/version.h"
#include "kvdiv/numerics/device.h"
#include "kvdiv/numerics/tensor_storage.h"
#include "max_abs.h"
#include "metrics.h"
#include "recorded.h"

namespace kvdiv::cuda {
namespace {

std::string version_text(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

/// The kernel module's own version ("580.159.04"), which CUDA does not tell.
std::string driver_version() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(in, line)) return {};
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string word = line.substr(at, end - at);
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
    at = end + 1;
  }
  return {};
}

class Stopwatch final : public DeviceStopwatch {
 public:
  void begin() override {
    intervals_.emplace_back(at::cuda::CUDAEvent(cudaEventDefault), at::cuda::CUDAEvent(cudaEventDefault));
    intervals_.back().first.record();
  }
  void end() override { intervals_.back().second.record(); }
  double seconds() override {
    for (auto& [first, second] : intervals_) {
      second.synchronize();
      seconds_ += static_cast<double>(first.elapsed_time(second)) * 1e-3;
    }
    intervals_.clear();
    return seconds_;
  }

 private:
  std::vector<std::pair<at::cuda::CUDAEvent, at::cuda::CUDAEvent>> intervals_;
  double seconds_ = 0.0;
};

/// ATen's operations, but for the rotary embedding: one launch instead of a dozen, with the same bits.
class AtenOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  at::Tensor rotate(const at::Tensor& x_BHTD, const at::Tensor& cos_11TD, const at::Tensor& sin_11TD) const override {
    return rotate_in_one(x_BHTD, cos_11TD, sin_11TD);
  }
};

/// One memory for the metrics of a step and, behind them, the rows in FP64: what goes to the host in one transfer.
class StepBuffer {
 public:
  StepBuffer(std::size_t n_metrics, std::size_t n_rows, std::int64_t V, c10::Device device)
      : n_metrics_(n_metrics), n_rows_(n_rows), V_(V) {
    const auto n_bytes =
        static_cast<std::int64_t>(rows_begin() + n_rows * static_cast<std::size_t>(V) * sizeof(double));
    memory_ = at::empty({n_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  }
  StepMetrics* metrics(std::size_t i) { return static_cast<StepMetrics*>(memory_.mutable_data_ptr()) + i; }
  void put_row(std::size_t i, const at::Tensor& row_V) {
    const auto begin = static_cast<std::int64_t>(rows_begin() + i * static_cast<std::size_t>(V_) * sizeof(double));
    memory_.narrow(0, begin, V_ * static_cast<std::int64_t>(sizeof(double))).view(at::kDouble).copy_(row_V);
  }
  void fetch(std::vector<StepMetrics>& metrics, std::vector<std::vector<double>>* rows) const {
    const at::Tensor host = memory_.to(at::kCPU);
    const auto* const from = static_cast<const char*>(host.const_data_ptr());
    metrics.resize(n_metrics_);
    std::memcpy(metrics.data(), from, n_metrics_ * sizeof(StepMetrics));
    if (rows == nullptr) return;
    rows->assign(n_rows_, std::vector<double>(static_cast<std::size_t>(V_)));
    for (std::size_t i = 0; i < n_rows_; ++i)
      std::memcpy((*rows)[i].data(), from + rows_begin() + i * static_cast<std::size_t>(V_) * sizeof(double),
                  static_cast<std::size_t>(V_) * sizeof(double));
  }

 private:
  std::size_t rows_begin() const { return (n_metrics_ * sizeof(StepMetrics) + 255) / 256 * 256; }

  std::size_t n_metrics_, n_rows_;
  std::int64_t V_;
  at::Tensor memory_;
};

class Module final : public DeviceModule {
 public:
  Module() : properties_(*at::cuda::getCurrentDeviceProperties()) {}

  c10::Device device() const override { return {c10::kCUDA, at::cuda::current_device()}; }
  Json describe() const override;
  Json read_numerics() const override;
  DeviceMemory memory() const override;
  std::shared_ptr<const Ops> make_ops(const std::string& backend, std::shared_ptr<const Ops> torch) const override;
  std::vector<StepMetrics> compare(std::span<const LogitPair> pairs,
                                   std::vector<std::vector<double>>* rows) const override;
  void note_max_abs(const at::Tensor& x, const at::Tensor& slots_2L, std::int64_t index) const override;
  std::unique_ptr<DeviceStopwatch> stopwatch() const override { return std::make_unique<Stopwatch>(); }
  std::unique_ptr<RecordedLaunches> record(const std::function<void()>& launches) const override {
    return record_launches(launches);
  }
  void synchronize() const override { c10::cuda::device_synchronize(); }

 private:
  cudaDeviceProp properties_;
};

Json Module::describe() const {
  int api = 0, runtime = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&api));
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const std::string driver = driver_version();
  const auto cublas = static_cast<int>(cublasLtGetVersion());
  return {{"gpu", properties_.name},
          {"compute_capability", fmt::format("{}.{}", properties_.major, properties_.minor)},
          {"n_multiprocessors", properties_.multiProcessorCount},
          {"gpu_memory_bytes", properties_.totalGlobalMem},
          {"gpu_cache_bytes", properties_.l2CacheSize},
          {"driver", driver.empty() ? Json(nullptr) : Json(driver)},
          {"driver_cuda", version_text(api)},
          {"cuda", version_text(runtime)},
          {"cublas", fmt::format("{}.{}.{}", cublas / 10000, cublas / 100 % 100, cublas % 100)}};
}

Json Module::read_numerics() const {
  const auto& context = at::globalContext();
  const char* const workspace = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  return {{"cublas_workspace_config", workspace != nullptr ? Json(workspace) : Json(nullptr)},
          {"allow_tf32_cublas", context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST},
          {"deterministic_cudnn", context.deterministicCuDNN()},
          {"sdpa_kernels",
           {{"flash", context.userEnabledFlashSDP()},
            {"memory_efficient", context.userEnabledMemEfficientSDP()},
            {"math", context.userEnabledMathSDP()},
            {"cudnn", context.userEnabledCuDNNSDP()}}}};
}

DeviceMemory Module::memory() const {
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(at::cuda::current_device());
  const std::int64_t unused = stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
  return {free + static_cast<std::uint64_t>(std::max<std::int64_t>(0, unused)), total,
          static_cast<std::uint64_t>(stats.allocated_bytes[kAll].peak)};
}

std::shared_ptr<const Ops> Module::make_ops(const std::string& backend, std::shared_ptr<const Ops> torch) const {
  if (backend == "torch") return std::make_shared<AtenOps>(std::move(torch));
  if (backend == "invariant") return std::make_shared<InvariantOps>();
  const AlgorithmPolicy policy = parse_policy(backend);
  return std::make_shared<CublasLtOps>(policy, std::make_shared<AtenOps>(std::move(torch)));
}

std::vector<StepMetrics> Module::compare(std::span<const LogitPair> pairs,
                                         std::vector<std::vector<double>>* rows) const {
  const c10::InferenceMode inference;
  const std::int64_t V = pairs.front().on_V.numel();
  std::size_t n_rows = 0;
  for (const LogitPair& p : pairs) n_rows += p.off_V.defined() ? 2 : 1;
  StepBuffer buffer(pairs.size(), rows != nullptr ? n_rows : 0, V, device());
  at::Tensor workspace = at::empty({static_cast<std::int64_t>(cuda::metrics_workspace_bytes(V))},
                                   at::TensorOptions().dtype(at::kByte).device(device()));
  std::size_t row = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const at::Tensor on = pairs[i].on_V.contiguous();
    const at::Tensor off = pairs[i].off_V.defined() ? pairs[i].off_V.contiguous() : at::Tensor();
    cuda::launch_metrics(storage_of(on), on.const_data_ptr(), off.defined() ? off.const_data_ptr() : nullptr, V,
                         workspace.mutable_data_ptr(), buffer.metrics(i), at::cuda::getCurrentCUDAStream().stream());
    if (rows == nullptr) continue;
    buffer.put_row(row++, on);
    if (off.defined()) buffer.put_row(row++, off);
  }
  std::vector<StepMetrics> out;
  buffer.fetch(out, rows);
  return out;
}

void Module::note_max_abs(const at::Tensor& x_in, const at::Tensor& slots_2L, std::int64_t index) const {
  const at::Tensor x = x_in.contiguous();
  auto* const slots = slots_2L.mutable_data_ptr<float>();
  cuda::note_max_abs(storage_of(x), x.const_data_ptr(), x.numel(), slots + index, slots + slots_2L.size(1) + index,
                     at::cuda::getCurrentCUDAStream().stream());
}

}  // namespace
}  // namespace kvdiv::cuda

extern "C" const char* kvdiv_cuda_module_version() { return KVDIV_VERSION; }

extern "C" const kvdiv::DeviceModule* kvdiv_cuda_module(std::string& why) {
  try {
    if (c10::cuda::device_count_ensure_non_zero() < 1) return nullptr;
    at::globalContext().lazyInitDevice(c10::kCUDA);
    static const kvdiv::cuda::Module module;
    return &module;
  } catch (const c10::Error& error) {
    why = std::string("no GPU can be used: ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = std::string("no GPU can be used: ") + error.what();
  }
  why = why.substr(0, why.find('\n'));
  return nullptr;
}
