#include "cublaslt_choice.h"

#include <array>
#include <utility>

#include "kvdiv/base/error.h"

namespace kvdiv::cuda {
namespace {

/// As much as cuBLAS itself takes on Hopper.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{32} << 20;
constexpr int kMaxCandidates = 64;

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtMatrixLayout_t layout(cudaDataType_t dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t out = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&out, dtype, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutCreate");
  return out;
}

/// The value of one attribute of an algorithm, all of which are 16 or 32 bits.
std::int64_t attribute_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  const auto status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
  if (status == CUBLAS_STATUS_SUCCESS) return value;
  std::uint16_t narrow = 0;
  check_cublas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &narrow, sizeof narrow, &written),
               "cublasLtMatmulAlgoConfigGetAttribute");
  return narrow;
}

/// Ways of adding the pieces of a split K that may be taken: sums of pieces in 16 bits only where that is allowed.
std::uint32_t reduction_mask(bool with_split, bool allow_reduced) {
  if (!with_split) return CUBLASLT_REDUCTION_SCHEME_NONE;
  std::uint32_t mask = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (allow_reduced) mask |= CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  return mask;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(ErrorKind::internal, "{}: {}", call, cublasLtGetStatusString(status));
}

Product::Product(cudaDataType_t dtype, bool allow_tf32, std::int64_t M, std::int64_t N, std::int64_t K,
                 std::int64_t x_stride, std::int64_t w_stride)
    : is_double_(dtype == CUDA_R_64F) {
  const auto compute = is_double_                          ? CUBLAS_COMPUTE_64F
                       : dtype == CUDA_R_32F && allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                           : CUBLAS_COMPUTE_32F;
  check_cublas(cublasLtMatmulDescCreate(&operation_, compute, is_double_ ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  w_ = layout(dtype, K, N, w_stride);
  x_ = layout(dtype, K, M, x_stride);
  y_ = layout(dtype, N, M, N);
}

Product::~Product() {
  for (const cublasLtMatrixLayout_t matrix : {w_, x_, y_}) cublasLtMatrixLayoutDestroy(matrix);
  cublasLtMatmulDescDestroy(operation_);
}

std::vector<cublasLtMatmulHeuristicResult_t> Product::candidates(cublasLtHandle_t handle, bool with_split,
                                                                 bool allow_reduced) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_mask(with_split, allow_reduced));
  std::vector<cublasLtMatmulHeuristicResult_t> results(kMaxCandidates);
  int n_found = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle, operation_, w_, x_, y_, y_, preference, kMaxCandidates,
                                                     results.data(), &n_found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<std::size_t>(n_found));
  std::erase_if(results, [&](const auto& r) {
    return r.state != CUBLAS_STATUS_SUCCESS ||
           (!with_split && attribute_of(r.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1);
  });
  return results;
}

std::int64_t Product::workspace_bytes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const auto status = cublasLtMatmulAlgoCheck(handle, operation_, w_, x_, y_, y_, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS) return -1;
  return static_cast<std::int64_t>(result.workspaceSize);
}

void Product::run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, const void* x, const void* w, void* y,
                  void* workspace, std::int64_t n_bytes, cudaStream_t stream) const {
  const float one = 1.0F, zero = 0.0F;
  const double one_wide = 1.0, zero_wide = 0.0;
  const void* const alpha = is_double_ ? static_cast<const void*>(&one_wide) : &one;
  const void* const beta = is_double_ ? static_cast<const void*>(&zero_wide) : &zero;
  check_cublas(cublasLtMatmul(handle, operation_, alpha, w, w_, x, x_, beta, y, y_, y, y_, &algorithm, workspace,
                              static_cast<std::size_t>(n_bytes), stream),
               "cublasLtMatmul");
}

std::vector<std::pair<std::string, std::int64_t>> describe_algorithm(const cublasLtMatmulAlgo_t& algorithm) {
  static constexpr std::array<std::pair<const char*, cublasLtMatmulAlgoConfigAttributes_t>, 9> kParts{
      {{"algorithm", CUBLASLT_ALGO_CONFIG_ID},
       {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
       {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
       {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
       {"reduction_scheme", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
       {"swizzling", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
       {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
       {"inner_shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID},
       {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID}}};
  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const auto& [name, attribute] : kParts) out.emplace_back(name, attribute_of(algorithm, attribute));
  return out;
}

}  // namespace kvdiv::cuda
