// The products of the invariant backend against what the machine can do, as ratios taken in the same run: each iteration
// times the product, then the machine's limit and the vendor's product, so that a busy machine slows all of them; medians of
// the iterations' ratios are shown.
//
//   of_fma_peak    M ≥ 2: multiply-adds per second, over those of a loop in registers
//   of_read_speed  M = 1: bytes of the weight per second, over those of a loop that only sums memory
//   best           the fastest iteration of the one over the fastest of the other: what is left when nobody else is there
//   of_vendor      speed over ATen's product of the same operands in the same dtype
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "bench.h"
#include "kvdiv/model/dtype.h"
#include "kvdiv/numerics/kernels.h"
#include "kvdiv/numerics/ops.h"

namespace kvdiv::bench {
namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Multiply-adds of all threads at once, operations per second.
double fma_rate(const KernelTable& kernels) {
  const int n_threads = at::get_num_threads();
  std::vector<double> done(static_cast<std::size_t>(n_threads));
  const double seconds = seconds_of([&] {
    at::parallel_for(0, n_threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float sink[3] = {1.0001f, 0.5f, 0.0f};
        done[static_cast<std::size_t>(i)] = kernels.register_flops(200000, sink);
        benchmark::DoNotOptimize(sink);
      }
    });
  });
  double sum = 0.0;
  for (const double d : done) sum += d;
  return sum / seconds;
}

/// Bytes per second of all threads summing stretches of one large piece of memory.
double read_rate(const KernelTable& kernels, const at::Tensor& memory) {
  const auto n_bytes = static_cast<std::int64_t>(memory.nbytes()) / 4096 * 4096;
  const auto* const from = static_cast<const char*>(memory.const_data_ptr());
  const double seconds = seconds_of([&] {
    at::parallel_for(0, n_bytes / 4096, 64, [&](std::int64_t begin, std::int64_t end) {
      benchmark::DoNotOptimize(kernels.read_bytes(from + begin * 4096, (end - begin) * 4096));
    });
  });
  return static_cast<double>(n_bytes) / seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Shape {
  DType dtype;
  std::int64_t M, K, N;
};

/// Copies of a weight that together leave the caches: what a step reads comes from memory.
constexpr std::int64_t kColdBytes = 512 << 20;

void linear(benchmark::State& state, const Shape& shape) {
  const auto [dtype, M, K, N] = shape;
  const KernelTable& table = kernels();
  const auto ours = make_ops("invariant", "eager"), vendors = make_ops("torch", "eager");
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor x = at::randn({1, M, K}, options).to(scalar_type(dtype));
  const at::Tensor w = at::randn({N, K}, options).to(scalar_type(dtype));
  const std::int64_t n_copies =
      M == 1 ? std::max<std::int64_t>(1, kColdBytes / static_cast<std::int64_t>(w.nbytes())) : 1;
  std::vector<Matrix> packed, plain;
  for (std::int64_t i = 0; i < n_copies; ++i) {
    packed.push_back({ours->pack(w), N});
    plain.push_back({w.clone(), N});
  }
  const at::Tensor memory = M == 1 ? at::ones({kColdBytes / 4}, options) : at::Tensor();
  const auto all = [&](const Ops& ops, const std::vector<Matrix>& weights) {
    return seconds_of([&] {
      for (const Matrix& m : weights) benchmark::DoNotOptimize(ops.linear(x, m));
    });
  };
  const auto work = static_cast<double>(n_copies) *
                    (M == 1 ? static_cast<double>(packed[0].data.nbytes()) : 2.0 * static_cast<double>(M * K * N));
  std::vector<double> rates, limits, of_limit, of_vendor;
  for (auto _ : state) {
    const double seconds = all(*ours, packed);
    state.SetIterationTime(seconds / static_cast<double>(n_copies));
    rates.push_back(work / seconds);
    limits.push_back(M == 1 ? read_rate(table, memory) : fma_rate(table));
    of_limit.push_back(rates.back() / limits.back());
    of_vendor.push_back(all(*vendors, plain) / seconds);
  }
  state.counters[M == 1 ? "GB/s" : "GFLOP/s"] = median(rates) / 1e9;
  state.counters[M == 1 ? "of_read_speed" : "of_fma_peak"] = median(of_limit);
  state.counters["best"] =
      *std::max_element(rates.begin(), rates.end()) / *std::max_element(limits.begin(), limits.end());
  state.counters["of_vendor"] = median(of_vendor);
}

}  // namespace

void register_kernels() {
  const std::vector<std::pair<std::int64_t, std::int64_t>> weights{{576, 1536}, {1536, 576}, {576, 576}, {4096, 4096}};
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32})
    for (const std::int64_t M : {1, 16, 64, 200, 512})
      for (const auto& [K, N] : weights) {
        const std::string name = std::string("linear/") + std::string(name_of(dtype)) + "/M" + std::to_string(M) +
                                 "/K" + std::to_string(K) + "/N" + std::to_string(N);
        const Shape shape{dtype, M, K, N};
        benchmark::RegisterBenchmark(name.c_str(), [shape](benchmark::State& state) { linear(state, shape); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(M == 1                    ? 5
                         : M * K * N < 300'000'000 ? 41
                                                   : 9);
      }
}

}  // namespace kvdiv::bench
