#pragma once
// Which of cuBLASLt's algorithms computes a product: asked for, pinned, and told.
#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvdiv::cuda {

/// Throws Error{internal} with the call's name if a cuBLAS status is not success.
void check_cublas(cublasStatus_t status, const char* call);

/// y[M,N] = x[M,K]·w[N,K]ᵀ, row-major, as cuBLASLt sees it: column-major yᵀ = wᵀ-transposed · xᵀ.
class Product {
 public:
  /// `x_stride`, `w_stride`: elements between rows.
  Product(cudaDataType_t dtype, bool allow_tf32, std::int64_t M, std::int64_t N, std::int64_t K, std::int64_t x_stride,
          std::int64_t w_stride);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// The library's algorithms for this shape, its favourite first. `with_split`: also those that cut K into pieces which
  /// are computed apart and added afterwards.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t handle, bool with_split,
                                                          bool allow_reduced) const;
  /// Bytes of workspace that an algorithm needs for this shape, or −1 if it cannot compute it.
  std::int64_t workspace_bytes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const;
  void run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, const void* x, const void* w, void* y,
           void* workspace, std::int64_t n_bytes, cudaStream_t stream) const;

 private:
  bool is_double_ = false;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
};

/// {algorithm, tile, stages, split_k, reduction_scheme, swizzling, custom, inner_shape, cluster}: the numbers that cuBLASLt
/// gives them.
std::vector<std::pair<std::string, std::int64_t>> describe_algorithm(const cublasLtMatmulAlgo_t& algorithm);

}  // namespace kvdiv::cuda
