#pragma once
// The benchmarks of kvdiv_bench, by file.

namespace kvdiv::bench {

void register_kernels();
void register_steps();

}  // namespace kvdiv::bench
