#include "cublaslt_ops.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "kvdiv/base/error.h"

namespace kvdiv::cuda {
namespace {

/// Row counts that a pinned algorithm must be able to compute: decoding, small and odd ones, prefixes.
constexpr std::array<std::int64_t, 14> kRowCounts{1, 2, 3, 5, 8, 9, 16, 17, 63, 64, 200, 512, 1000, 4096};
/// The row count whose favourites are tried first: a prefix, where a slow algorithm would cost most.
constexpr std::int64_t kReferenceRows = 512;

cudaDataType_t cuda_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return CUDA_R_16F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kFloat:
      return CUDA_R_32F;
    case at::kDouble:
      return CUDA_R_64F;
    default:
      fail(ErrorKind::internal, "cuBLASLt: no product of dtype {}", c10::toString(dtype));
  }
}

const char* dtype_name(int dtype) {
  switch (dtype) {
    case CUDA_R_16F:
      return "float16";
    case CUDA_R_16BF:
      return "bfloat16";
    case CUDA_R_32F:
      return "float32";
    default:
      return "float64";
  }
}

bool tf32_is_allowed() { return at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST; }

bool reduced_is_allowed(int dtype) {
  const auto& context = at::globalContext();
  const auto option = dtype == CUDA_R_16BF ? context.allowBF16ReductionCuBLAS() : context.allowFP16ReductionCuBLAS();
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

std::int64_t row_stride(const at::Tensor& x) { return x.size(0) == 1 ? x.size(1) : x.stride(0); }

}  // namespace

AlgorithmPolicy parse_policy(const std::string& backend) {
  constexpr std::array<std::pair<const char*, AlgorithmPolicy>, 3> kPolicies{
      {{"cublaslt:heuristic", AlgorithmPolicy::heuristic},
       {"cublaslt:no-split-k", AlgorithmPolicy::no_split_k},
       {"cublaslt:one-algorithm", AlgorithmPolicy::one_algorithm}}};
  for (const auto& [name, policy] : kPolicies)
    if (backend == name) return policy;
  fail_usage(
      "--backend: '{}' is not known (available: cublaslt:heuristic, cublaslt:no-split-k, cublaslt:one-algorithm)",
      backend);
}

const cublasLtMatmulAlgo_t& CublasLtOps::pinned(const Shape& shape, std::int64_t w_stride) const {
  if (const auto known = pinned_.find(shape); known != pinned_.end()) return known->second;
  const auto handle = at::cuda::getCurrentCUDABlasLtHandle();
  const auto dtype = static_cast<cudaDataType_t>(shape.dtype);
  const auto product = [&](std::int64_t M) {
    return Product(dtype, tf32_is_allowed(), M, shape.N, shape.K, shape.K, w_stride);
  };
  for (const auto& candidate : product(kReferenceRows).candidates(handle, false, false))
    if (std::all_of(kRowCounts.begin(), kRowCounts.end(),
                    [&](std::int64_t M) { return product(M).workspace_bytes(handle, candidate.algo) >= 0; }))
      return pinned_[shape] = candidate.algo;
  fail_usage(
      "--backend cublaslt:one-algorithm: cuBLASLt has no algorithm without split K that computes {} products of {} × "
      "{} "
      "for every number of rows; use cublaslt:no-split-k",
      dtype_name(shape.dtype), shape.N, shape.K);
}

cublasLtMatmulAlgo_t CublasLtOps::pick(const Shape& shape, const Product& product, std::int64_t w_stride) const {
  if (policy_ == AlgorithmPolicy::one_algorithm) return pinned(shape, w_stride);
  const bool with_split = policy_ == AlgorithmPolicy::heuristic;
  const auto candidates =
      product.candidates(at::cuda::getCurrentCUDABlasLtHandle(), with_split, reduced_is_allowed(shape.dtype));
  if (candidates.empty())
    fail_usage("--backend cublaslt: cuBLASLt has no algorithm for a {} product of {} × {}", dtype_name(shape.dtype),
               shape.N, shape.K);
  return candidates.front().algo;
}

const CublasLtOps::Chosen& CublasLtOps::chosen(const at::Tensor& x_MK, const at::Tensor& w_NK) const {
  const auto dtype = cuda_dtype(x_MK.scalar_type());
  const Shape shape{w_NK.size(0), w_NK.size(1), static_cast<int>(dtype)};
  const std::int64_t x_stride = row_stride(x_MK), w_stride = row_stride(w_NK);
  Chosen& out = chosen_[shape][{x_MK.size(0), x_stride}];
  if (out.product) return out;
  out.product = std::make_unique<Product>(dtype, tf32_is_allowed(), x_MK.size(0), shape.N, shape.K, x_stride, w_stride);
  out.algorithm = pick(shape, *out.product, w_stride);
  out.n_bytes = out.product->workspace_bytes(at::cuda::getCurrentCUDABlasLtHandle(), out.algorithm);
  if (out.n_bytes < 0)
    fail(ErrorKind::internal, "cuBLASLt: the chosen algorithm does not compute {} rows of {} × {}", x_MK.size(0),
         shape.N, shape.K);
  return out;
}

at::Tensor CublasLtOps::linear(const at::Tensor& x_BTK, const Matrix& w) const {
  if (x_BTK.scalar_type() != w.data.scalar_type())
    fail(ErrorKind::internal, "cuBLASLt: operands of unlike dtypes: a silent promotion");
  at::Tensor x_MK = x_BTK.reshape({-1, x_BTK.size(-1)});
  if (x_MK.stride(1) != 1) x_MK = x_MK.contiguous();
  std::vector<std::int64_t> shape = x_BTK.sizes().vec();
  shape.back() = w.n_rows;
  at::Tensor y = at::empty(shape, x_BTK.options());
  const std::lock_guard lock(mutex_);
  const Chosen& c = chosen(x_MK, w.data);
  at::Tensor workspace = at::empty({c.n_bytes}, x_BTK.options().dtype(at::kByte));
  c.product->run(at::cuda::getCurrentCUDABlasLtHandle(), c.algorithm, x_MK.const_data_ptr(), w.data.const_data_ptr(),
                 y.mutable_data_ptr(), workspace.mutable_data_ptr(), c.n_bytes,
                 at::cuda::getCurrentCUDAStream().stream());
  return y;
}

std::vector<AlgorithmStretch> CublasLtOps::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<AlgorithmStretch> out;
  for (const auto& [shape, by_rows] : chosen_) {
    bool is_first = true;
    for (const auto& [rows, c] : by_rows) {
      auto algorithm = describe_algorithm(c.algorithm);
      if (is_first || out.back().algorithm != algorithm)
        out.push_back({shape.N, shape.K, dtype_name(shape.dtype), rows.first, rows.first, 0, std::move(algorithm)});
      is_first = false;
      out.back().to_rows = rows.first;
      ++out.back().n_row_counts;
    }
  }
  return out;
}

}  // namespace kvdiv::cuda
