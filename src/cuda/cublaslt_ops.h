#pragma once
// Products by cuBLASLt itself, so that what ATen leaves to the library is chosen here and told in the report:
//   cublaslt:heuristic      the library's favourite for each shape
//   cublaslt:no-split-k     its favourite among those that do not cut K into pieces
//   cublaslt:one-algorithm  one such algorithm for a weight whatever the number of rows
// Everything else is ATen's.
#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cublaslt_choice.h"
#include "kvdiv/numerics/forwarding_ops.h"

namespace kvdiv::cuda {

enum class AlgorithmPolicy { heuristic, no_split_k, one_algorithm };
/// "cublaslt:no-split-k" → the policy. Throws Error{usage}.
AlgorithmPolicy parse_policy(const std::string& backend);

class CublasLtOps final : public ForwardingOps {
 public:
  CublasLtOps(AlgorithmPolicy policy, std::shared_ptr<const Ops> torch)
      : ForwardingOps(std::move(torch)), policy_(policy) {}

  at::Tensor linear(const at::Tensor& x_BTK, const Matrix& w) const override;
  std::vector<AlgorithmStretch> choices() const override;

 private:
  struct Shape {
    std::int64_t N, K;
    int dtype;
    auto operator<=>(const Shape&) const = default;
  };
  struct Chosen {
    std::unique_ptr<Product> product;
    cublasLtMatmulAlgo_t algorithm;
    std::int64_t n_bytes = 0;
  };
  using ByRows = std::map<std::pair<std::int64_t, std::int64_t>, Chosen>;  ///< rows, and their stride

  const Chosen& chosen(const at::Tensor& x_MK, const at::Tensor& w_NK) const;
  cublasLtMatmulAlgo_t pick(const Shape& shape, const Product& product, std::int64_t w_stride) const;
  const cublasLtMatmulAlgo_t& pinned(const Shape& shape, std::int64_t w_stride) const;

  AlgorithmPolicy policy_;
  // What was chosen is kept: it is asked for once a shape, and told afterwards.
  mutable std::mutex mutex_;
  mutable std::map<Shape, ByRows> chosen_;
  mutable std::map<Shape, cublasLtMatmulAlgo_t> pinned_;
};

}  // namespace kvdiv::cuda
