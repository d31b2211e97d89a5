#pragma once
// Every process-wide switch that changes numerics, set in one place, read back into the report, and restored.
#include <cstdint>

#include "kvdiv/base/json.h"

namespace kvdiv {

/// Puts MKL_CBWR=AVX2,STRICT into the environment unless the user set MKL_CBWR: without it MKL's FP32 products depend on
/// the alignment of the weights in memory; and CUBLAS_WORKSPACE_CONFIG=:4096:8 likewise, without which a GPU's products may
/// differ from run to run. Bounds oneDNN's kernel caches likewise, and the freed memory that malloc keeps:
/// that changes memory and no bits. Must run before the first product: the libraries read these once.
void prepare_process();

struct NumericSwitches {
  int n_threads = 1;
  bool deterministic_algorithms = true;
  bool allow_tf32 = false;
  bool allow_fp16_reduced_reduction = false;
  bool allow_bf16_reduced_reduction = false;
};

/// Sets the switches; the destructor puts back what was found.
class NumericGuard {
 public:
  explicit NumericGuard(const NumericSwitches& wanted);
  ~NumericGuard();
  NumericGuard(const NumericGuard&) = delete;
  NumericGuard& operator=(const NumericGuard&) = delete;

 private:
  NumericSwitches found_;
};

/// The switches as the library reports them now.
NumericSwitches read_switches();

/// The same as JSON for the report's `numerics`, with the environment variables that change numerics.
Json read_numerics();

}  // namespace kvdiv
