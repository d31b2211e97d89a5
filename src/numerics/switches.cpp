#include "kvdiv/numerics/switches.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <malloc.h>

#include <cstdlib>

#include "kvdiv/numerics/kernels.h"

namespace kvdiv {
namespace {

void apply(const NumericSwitches& s) {
  at::set_num_threads(s.n_threads);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(s.deterministic_algorithms, /*warn_only=*/false);
#ifdef NDEBUG
  // Deterministic mode also fills every fresh buffer with NaN: kept in debug builds, where it finds reads of memory that
  // nothing wrote; in release builds it would only cost bandwidth.
  context.setDeterministicFillUninitializedMemory(false);
#endif
  context.setFloat32MatmulPrecision(s.allow_tf32 ? "high" : "highest");
  context.setAllowFP16ReductionCuBLAS(s.allow_fp16_reduced_reduction);
  context.setAllowBF16ReductionCuBLAS(s.allow_bf16_reduced_reduction);
}

bool allows_reduced(at::CuBLASReductionOption option) {
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

}  // namespace

void prepare_process() {
  setenv("MKL_CBWR", "AVX2,STRICT", /*overwrite=*/0);
  // oneDNN compiles a kernel for each shape and keeps 1,024 of them, twice over: OFF has new shapes at every step, and a run
  // of 40 prompts grew by 800 MB. A step needs about ten shapes, each used once a layer.
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "12", /*overwrite=*/0);
  setenv("LRU_CACHE_CAPACITY", "12", /*overwrite=*/0);
  // A GPU's products may otherwise use a workspace that another stream's split sums share. cuBLAS reads it once.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // Tensors of more than this go back to the system when they are freed. glibc otherwise raises the limit as it goes and
  // keeps the holes that prompts of other lengths leave.
  mallopt(M_MMAP_THRESHOLD, 2 << 20);
  // Smaller ones come and go with every operation: giving their pages back each time costs more than the operation.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

NumericSwitches read_switches() {
  auto& context = at::globalContext();
  NumericSwitches s;
  s.n_threads = at::get_num_threads();
  s.deterministic_algorithms = context.deterministicAlgorithms();
  s.allow_tf32 = context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST;
  s.allow_fp16_reduced_reduction = allows_reduced(context.allowFP16ReductionCuBLAS());
  s.allow_bf16_reduced_reduction = allows_reduced(context.allowBF16ReductionCuBLAS());
  return s;
}

NumericGuard::NumericGuard(const NumericSwitches& wanted) : found_(read_switches()) { apply(wanted); }
NumericGuard::~NumericGuard() { apply(found_); }

Json read_numerics() {
  const NumericSwitches s = read_switches();
  Json out;
  out["deterministic_algorithms"] = s.deterministic_algorithms;
  out["allow_tf32"] = s.allow_tf32;
  out["allow_fp16_reduced_reduction"] = s.allow_fp16_reduced_reduction;
  out["allow_bf16_reduced_reduction"] = s.allow_bf16_reduced_reduction;
  out["mkl_cbwr"] = std::getenv("MKL_CBWR") != nullptr ? Json(std::getenv("MKL_CBWR")) : Json(nullptr);
  // What `--backend invariant` uses; its bits are the same with each of them.
  const auto sets = kernel_names();
  const char* const named = std::getenv("KVDIV_KERNELS");
  out["invariant_kernels"] = named != nullptr ? Json(named) : sets.empty() ? Json(nullptr) : Json(sets.front());
  return out;
}

}  // namespace kvdiv
