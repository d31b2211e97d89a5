// kvdiv_bench: what the invariant backend reaches of what this machine can do. All figures are ratios of one run.
//
//   kvdiv_bench --benchmark_filter=linear/float16
//   KVDIV_KERNELS=AVX2 KVDIV_BENCH_THREADS=2 kvdiv_bench --benchmark_filter=step
#include "bench.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "kvdiv/base/error.h"
#include "kvdiv/numerics/kernels.h"
#include "kvdiv/numerics/switches.h"

int main(int argc, char** argv) {
  try {
    kvdiv::prepare_process();
    const char* const n_threads = std::getenv("KVDIV_BENCH_THREADS");
    kvdiv::NumericSwitches switches;
    switches.n_threads = n_threads != nullptr ? std::atoi(n_threads) : 1;
    const kvdiv::NumericGuard guard(switches);
    benchmark::AddCustomContext("kernels", kvdiv::kernels().name);
    benchmark::AddCustomContext("threads", std::to_string(at::get_num_threads()));
    kvdiv::bench::register_kernels();
    kvdiv::bench::register_steps();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
  } catch (const kvdiv::Error& error) {
    std::fprintf(stderr, "kvdiv_bench: %s\n", error.what());
    return 2;
  }
}
